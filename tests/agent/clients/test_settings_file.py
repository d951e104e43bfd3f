"""Files of an operator's."""

from decimal import Decimal
from pathlib import Path

import pytest

from services.agent.clients.settings_file import Strict, read_settings_file


class Thing(Strict):
    price: Decimal = Decimal(0)
    seconds: float = 1.0


class Things(Strict):
    things: dict[str, Thing]


class TestReadSettingsFile:
    def test_numbers_are_exact_where_that_is_asked_for(self, tmp_path: Path) -> None:
        path = tmp_path / "things.toml"
        path.write_text("[things.a]\nprice = 0.1\nseconds = 2.5\n", encoding="utf-8")

        read = read_settings_file(path, Things, error=LookupError)

        assert read.things == {"a": Thing(price=Decimal("0.1"), seconds=2.5)}

    @pytest.mark.parametrize(
        ("content", "told"),
        [
            (b"[things.a]\ncolour = 1\n", "things.a.colour: unknown key$"),
            (b"[things.a]\nprice = 'secret'\n", "things.a.price: [^;]*decimal$"),
            (b"[things.a]\nprice = 'x'\nsize = 1\n", "a.price: .*; .*things.a.size: unknown key$"),
            (b"[things", "is no TOML: "),
            (b"\xff", "is no TOML: "),
        ],
    )
    def test_what_is_wrong_is_told_in_one_line_without_the_value(
        self, tmp_path: Path, content: bytes, told: str
    ) -> None:
        path = tmp_path / "things.toml"
        path.write_bytes(content)

        with pytest.raises(LookupError, match=told) as caught:
            read_settings_file(path, Things, error=LookupError)

        assert str(caught.value).startswith(f"{path}: ")
        assert "\n" not in str(caught.value)
        assert "secret" not in str(caught.value)

    def test_one_that_is_not_there_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(LookupError, match=r"things\.toml: cannot be read: No such file"):
            read_settings_file(tmp_path / "things.toml", Things, error=LookupError)
