"""Files that only their owner can read."""

import os
import stat
from pathlib import Path

import pytest

from services.common.private_file import write_private_file


class TestWritePrivateFile:
    @pytest.mark.parametrize("umask", [0, 0o777])
    def test_a_file_is_its_owner_s_alone_whatever_the_umask(
        self, tmp_path: Path, umask: int
    ) -> None:
        previous = os.umask(umask)
        try:
            write_private_file(tmp_path / "key", b"secret")
        finally:
            os.umask(previous)

        assert (tmp_path / "key").read_bytes() == b"secret"
        assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600

    def test_a_file_is_replaced_and_nothing_is_left_beside_it(self, tmp_path: Path) -> None:
        (tmp_path / "key").write_bytes(b"a longer one")

        write_private_file(tmp_path / "key", b"secret")

        assert (tmp_path / "key").read_bytes() == b"secret"
        assert [tmp_path / "key"] == list(tmp_path.iterdir())

    def test_a_link_is_replaced_and_not_followed(self, tmp_path: Path) -> None:
        path, target = tmp_path / "key", tmp_path / "target"
        target.write_bytes(b"")
        path.symlink_to(target)

        write_private_file(path, b"secret")

        assert (target.read_bytes(), path.is_symlink()) == (b"", False)

    def test_a_failure_leaves_nothing_behind(self, tmp_path: Path) -> None:
        (tmp_path / "key").mkdir()

        with pytest.raises(OSError, match="key"):
            write_private_file(tmp_path / "key", b"secret")
        assert [tmp_path / "key"] == list(tmp_path.iterdir())
