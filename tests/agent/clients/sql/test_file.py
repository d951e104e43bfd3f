from pathlib import Path

import pytest

from services.agent.clients.sql.file import SqlFileError, SqlSettings, load_databases
from tests.repo.tree import ROOT

URL = "postgresql://reader:word@db.example.org/shop"
ENVIRON = {"SHOP_DATABASE_URL": URL, "OTHER": "mysql://x"}
LEAST = '[databases.shop]\nurl_env = "SHOP_DATABASE_URL"\n'


def load(tmp_path: Path, text: str) -> tuple[SqlSettings, ...]:
    path = tmp_path / "sql.toml"
    path.write_text(text, encoding="utf-8")
    return load_databases(path, ENVIRON)


class TestLoadDatabases:
    def test_without_a_file_there_are_none(self) -> None:
        assert load_databases(None, ENVIRON) == ()

    def test_what_is_left_out_has_a_default(self, tmp_path: Path) -> None:
        assert load(tmp_path, LEAST) == (SqlSettings("shop", URL),)

    def test_the_documented_file_is_read(self, tmp_path: Path) -> None:
        text = (ROOT / "docs" / "tools.md").read_text(encoding="utf-8")

        [shop] = load(tmp_path, text.partition("```toml\n")[2].partition("```")[0])

        assert shop == SqlSettings(
            "shop",
            URL,
            "orders and customers of the shop",
            ("public.orders", "public.customers"),
        )

    def test_the_address_is_not_shown(self, tmp_path: Path) -> None:
        assert "word" not in repr(load(tmp_path, LEAST))

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("", "databases: Field required"),
            ("[databases]", "databases: Dictionary should have at least 1 item"),
            ("x = ", "is no TOML"),
            ("[databases.shop]", r"databases\.shop\.url_env: Field required"),
            (LEAST.replace("shop", "sh op", 1), "is no TOML"),
            (LEAST + "rows = 5", r"databases\.shop\.rows: unknown key"),
            (LEAST + "seconds = 0", r"databases\.shop\.seconds: Input should be greater than 0"),
            (LEAST + "max_rows = 1001", r"databases\.shop\.max_rows: "),
            (LEAST + 'tables = ["orders"]', r"databases\.shop\.tables\.0: "),
            (LEAST.replace("SHOP_DATABASE_URL", "NONE"), "the variable NONE, .* is not set"),
            (LEAST.replace("SHOP_DATABASE_URL", "OTHER"), "OTHER must be an address of PostgreSQL"),
        ],
    )
    def test_what_is_wrong_is_named(self, tmp_path: Path, text: str, told: str) -> None:
        with pytest.raises(SqlFileError, match=rf"sql\.toml: .*{told}") as raised:
            load(tmp_path, text)

        assert "mysql" not in str(raised.value)

    def test_a_file_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(SqlFileError, match=r"none\.toml: cannot be read"):
            load_databases(tmp_path / "none.toml", ENVIRON)
