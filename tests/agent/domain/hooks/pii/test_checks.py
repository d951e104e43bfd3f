import pytest

from services.agent.domain.hooks.pii import checks


@pytest.mark.parametrize(
    "number", ["4111111111111111", "4111 1111 1111 1111", "378282246310005", "30569309025904"]
)
def test_card_numbers_that_fit(number: str) -> None:
    assert checks.luhn(number)


@pytest.mark.parametrize("number", ["4111111111111112", "0000000000000000", "1234567890123456"])
def test_card_numbers_that_do_not(number: str) -> None:
    assert not checks.luhn(number)


@pytest.mark.parametrize(
    ("number", "fits"),
    [
        ("DE89370400440532013000", True),
        ("GB82WEST12345698765432", True),
        ("MT84MALT011000012345MTLCAST001S", True),
        ("DE89370400440532013001", False),
        ("DE8937040044053201300", False),
        ("ZZ89370400440532013000", False),
    ],
)
def test_ibans(number: str, fits: bool) -> None:
    assert checks.iban(number) == fits


@pytest.mark.parametrize(
    ("number", "fits"),
    [("11010519491231002X", True), ("11010519491231002x", True), ("110105194912310021", False)],
)
def test_resident_ids(number: str, fits: bool) -> None:
    assert checks.resident_id(number) == fits


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("10.0.0.1", True),
        ("256.1.1.1", False),
        ("2001:db8::ff00:42:8329", True),
        ("::1", True),
        ("::", False),
        ("12:30:45", False),
    ],
)
def test_addresses(text: str, fits: bool) -> None:
    assert checks.ip(text) == fits
