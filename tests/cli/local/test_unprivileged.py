"""The script that becomes a PostgreSQL program."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.local import unprivileged
from cli.local.unprivileged import EXIT_FORBIDDEN

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


def _become(
    way: str, user: int, group: int, *command: str, parent: int | None = None
) -> "subprocess.CompletedProcess[str]":
    script = [sys.executable, "-I", "-S", unprivileged.__file__]
    ids = [str(user), str(group), str(parent or os.getpid())]
    return subprocess.run(
        [*script, way, *ids, *command], capture_output=True, text=True, timeout=30, check=False
    )


class TestMain:
    @pytest.mark.parametrize(
        ("way", "expected"),
        [
            ("self", f"{os.geteuid()} {os.getegid()}"),
            pytest.param("namespace", "2001 2002", marks=on_linux),
            pytest.param("user", "2001 2002", marks=as_root),
        ],
    )
    def test_the_program_sees_the_ids_it_was_given(
        self, way: str, expected: str, tmp_path: Path
    ) -> None:
        done = _become(
            way, 2001, 2002, "/bin/sh", "-c", "echo $(id -u) $(id -g)", "-D", str(tmp_path)
        )

        assert done.stdout.strip() == expected

    @on_linux
    def test_files_made_in_a_namespace_are_ones_own(self, tmp_path: Path) -> None:
        _become("namespace", 2001, 2002, "/usr/bin/touch", str(tmp_path / "file"))

        made = (tmp_path / "file").stat()
        assert (made.st_uid, made.st_gid) == (os.geteuid(), os.getegid())

    @on_linux
    def test_outside_its_namespace_the_program_may_do_nothing_special(self) -> None:
        done = _become("namespace", 2001, 2002, "/bin/grep", "CapEff", "/proc/self/status")

        assert int(done.stdout.split()[1], 16) == 0

    @as_root
    def test_as_another_user_there_are_no_other_groups(self, tmp_path: Path) -> None:
        shell = ["/bin/sh", "-c", "id -G", "-D", str(tmp_path)]

        assert _become("user", 2001, 2002, *shell).stdout.split() == ["2002"]

    @on_linux
    def test_says_that_a_way_is_forbidden(self) -> None:
        done = _become("namespace", 2**32 - 1, 0, "/bin/true")

        assert done.returncode == EXIT_FORBIDDEN
        assert done.stderr.startswith("namespace: ")

    def test_does_not_start_for_a_parent_that_is_gone(self) -> None:
        done = _become("self", 0, 0, "/bin/echo", "started", parent=1)

        assert done.stdout == ""
        assert "the parent is gone" in done.stderr
