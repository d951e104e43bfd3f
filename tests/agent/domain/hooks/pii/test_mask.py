import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.agent.domain.hooks.pii.find import Kind
from services.agent.domain.hooks.pii.mask import Masker, Strategy

MAIL, CARD, PHONE = "ann@example.com", "4111 1111 1111 1111", "+49 30 901820"
SAMPLES = [MAIL, CARD, PHONE, "DE89370400440532013000", "11010519491231002X"]
SAMPLES += [
    "10.0.0.1",
    "2001:db8::1",
    "sk-proj-abcdefghij0123456789",
    "13812345678",
    "x",
    " ",
    "@",
    "+",
    "1",
    ":",
]


def masker(strategy: Strategy, salt: str = "") -> Masker:
    return Masker(dict.fromkeys(Kind, strategy), salt)


class TestText:
    @pytest.mark.parametrize(
        ("strategy", "expected"),
        [
            (Strategy.REDACT, "Ask [email] or [phone], card [card]."),
            (Strategy.MASK, "Ask a***@example.com or ****1820, card ****1111."),
        ],
    )
    def test_each_is_replaced(self, strategy: Strategy, expected: str) -> None:
        assert masker(strategy).text(f"Ask {MAIL} or {PHONE}, card {CARD}.") == expected

    def test_equal_values_have_equal_hashes_however_they_are_written(self) -> None:
        cards = (
            CARD,
            "4111111111111111",
            "４１１１１１１１\u200b１１１１１１１１",
            "378282246310005",
        )
        first, second, wide, third = masker(Strategy.HASH).text(", ".join(cards)).split(", ")

        assert first == second == wide != third
        assert first != masker(Strategy.HASH, "other").text(CARD)

    def test_each_kind_may_have_its_own_strategy(self) -> None:
        both = Masker({Kind.EMAIL: Strategy.MASK, Kind.CARD: Strategy.REDACT})

        assert both.text(f"{MAIL} {CARD} {PHONE}") == f"a***@example.com [card] {PHONE}"

    @given(st.lists(st.sampled_from(SAMPLES) | st.text(max_size=5)), st.sampled_from(Strategy))
    def test_a_masked_text_stays_as_it_is(self, parts: list[str], strategy: Strategy) -> None:
        once = masker(strategy).text(" ".join(parts))

        assert masker(strategy).text(once) == once


class TestAligned:
    @pytest.mark.parametrize("strategy", Strategy)
    def test_everything_else_keeps_its_place(self, strategy: Strategy) -> None:
        text = f"from {MAIL} at ::1 on {PHONE}."
        masked = masker(strategy).aligned(text)

        assert len(masked) == len(text)
        assert (masked[:5], masked[-1]) == ("from ", ".")
        assert not {MAIL, "::1", PHONE} & {masked[5:20], masked[24:27], masked[31:-1]}


class TestArguments:
    def test_strings_keys_and_numbers_are_masked_wherever_they_are(self) -> None:
        arguments = {"to": [MAIL, {MAIL: 13812345678}], "n": 5, "f": 1.5, "b": True, "z": None}

        masked = json.loads(masker(Strategy.REDACT).arguments(json.dumps(arguments)))

        assert masked == {
            "to": ["[email]", {"[email]": "[phone]"}],
            "n": 5,
            "f": 1.5,
            "b": True,
            "z": None,
        }

    def test_what_is_escaped_is_seen(self) -> None:
        written = '{"to": "ann\\u0040example.com"}'

        assert json.loads(written) == {"to": MAIL}
        assert masker(Strategy.REDACT).arguments(written) == '{"to": "[email]"}'

    @pytest.mark.parametrize("written", ["", '{"to": "', "{" * 100_000, "[" * 100_000])
    def test_what_cannot_be_read_is_masked_as_a_text(self, written: str) -> None:
        assert masker(Strategy.REDACT).arguments(written + MAIL) == written + "[email]"

    def test_what_holds_nothing_stays_as_it_was_written(self) -> None:
        written = '{ "what":  "x" }'

        assert masker(Strategy.REDACT).arguments(written) == written
