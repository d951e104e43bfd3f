"""The administrator's key on disk."""

import stat
from pathlib import Path

import pytest

from services.gateway.domain.errors import KeyFileError
from services.gateway.domain.keys import compose, key_id_of
from services.gateway.store.key_file import PrivateKeyFile

KEY = compose(key_id_of("0190a5b8-0000-7000-8000-000000000000"), bytes(range(32)))


def mode(path: Path) -> int:
    """The permissions of a file."""
    return stat.S_IMODE(path.stat().st_mode)


class TestPrivateKeyFile:
    def test_what_is_written_is_read(self, tmp_path: Path) -> None:
        path = tmp_path / "deep/admin.key"

        PrivateKeyFile(path).write(KEY)

        assert PrivateKeyFile(path).read() == KEY
        assert mode(path) == 0o600
        assert [path] == list(path.parent.iterdir())

    def test_no_file_and_an_empty_file_hold_no_key(self, tmp_path: Path) -> None:
        path = tmp_path / "admin.key"

        assert PrivateKeyFile(path).read() is None
        path.touch()
        assert PrivateKeyFile(path).read() is None

    def test_a_file_that_others_can_read_is_closed_to_them(self, tmp_path: Path) -> None:
        path = tmp_path / "admin.key"
        path.write_text(KEY)
        path.chmod(0o644)

        PrivateKeyFile(path).read()

        assert mode(path) == 0o600

    def test_a_file_of_something_else_is_not_touched(self, tmp_path: Path) -> None:
        path = tmp_path / "thesis.txt"
        path.write_text("years of work")

        with pytest.raises(KeyFileError, match="something other than a key"):
            PrivateKeyFile(path).read()
        assert path.read_text() == "years of work"

    def test_a_place_that_is_none_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()

        with pytest.raises(KeyFileError, match=r"admin\.key"):
            PrivateKeyFile(tmp_path / "file/admin.key").write(KEY)
        with pytest.raises(KeyFileError):
            PrivateKeyFile(tmp_path).read()
