"""What the embedded PostgreSQL keeps on disk."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.local.cluster import DataDirectory, is_server
from cli.local.errors import AlreadyRunningError, StartError


@pytest.fixture
def files(tmp_path: Path) -> DataDirectory:
    """An empty data directory."""
    return DataDirectory(tmp_path)


class TestPassword:
    def test_is_made_once_for_its_owner_alone(self, files: DataDirectory) -> None:
        previous = os.umask(0)
        try:
            passwords = {files.password() for _ in range(3)}
        finally:
            os.umask(previous)

        assert len(passwords) == 1
        assert len(passwords.pop()) >= 32
        assert (files.root / "postgres.password").stat().st_mode == 0o100600

    def test_is_another_one_elsewhere(self, tmp_path: Path) -> None:
        folders = [tmp_path / "a", tmp_path / "b"]
        for folder in folders:
            folder.mkdir()

        assert len({DataDirectory(folder).password() for folder in folders}) == 2

    def test_is_not_made_anew_for_a_cluster_that_has_one(self, files: DataDirectory) -> None:
        files.cluster.mkdir()

        with pytest.raises(StartError, match="missing"):
            files.password()


class TestSupervised:
    def test_makes_the_folder_for_its_owner_alone(self, tmp_path: Path) -> None:
        with DataDirectory(tmp_path / "deep" / "data").supervised():
            assert (tmp_path / "deep" / "data").stat().st_mode == 0o40700

    def test_is_for_one_at_a_time(self, files: DataDirectory) -> None:
        with files.supervised(), pytest.raises(AlreadyRunningError), files.supervised():
            pass

        with files.supervised():
            pass

    def test_refuses_a_lock_that_is_a_link(self, files: DataDirectory) -> None:
        victim = files.root / "victim"
        (files.root / "postgres.lock").symlink_to(victim)

        with pytest.raises(OSError, match="symbolic links"), files.supervised():
            pass
        assert not victim.exists()


class TestClaim:
    async def test_waits_for_whoever_inherited_the_last_one(self, files: DataDirectory) -> None:
        first = await files.claim()
        heir = await asyncio.create_subprocess_exec("sleep", "60", pass_fds=[first])
        os.close(first)
        claiming = asyncio.create_task(files.claim())
        done, _ = await asyncio.wait({claiming}, timeout=0.3)
        heir.kill()
        await heir.wait()

        assert not done
        os.close(await asyncio.wait_for(claiming, 5))

    async def test_cancelled_it_keeps_nothing(self, files: DataDirectory) -> None:
        first = await files.claim()
        claiming = asyncio.create_task(files.claim())
        await asyncio.wait({claiming}, timeout=0.1)
        claiming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claiming
        os.close(first)

        os.close(await asyncio.wait_for(files.claim(), 5))

    @pytest.mark.parametrize(
        "record",
        [
            pytest.param("", id="nothing"),
            pytest.param("\n", id="no number"),
            pytest.param("x\n", id="no number either"),
            pytest.param("999999999\n", id="no process"),
            pytest.param(f"{os.getpid()}\n", id="another program"),
        ],
    )
    async def test_a_record_of_no_server_is_forgotten_or_ignored(
        self, files: DataDirectory, record: str
    ) -> None:
        files.cluster.mkdir()
        (files.cluster / "postmaster.pid").write_text(record)

        os.close(await asyncio.wait_for(files.claim(), 5))

        assert (files.cluster / "postmaster.pid").exists() != record.strip().isdecimal()


class TestIsServer:
    def test_another_program_there_is_none(self, tmp_path: Path) -> None:
        with subprocess.Popen(["sleep", "60"], cwd=tmp_path) as other:
            assert not is_server(other.pid, tmp_path)
            other.kill()

    @pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel about processes")
    def test_a_server_over_another_cluster_is_none(self, tmp_path: Path) -> None:
        (tmp_path / "here").mkdir()
        (tmp_path / "there").mkdir()
        program = tmp_path / "postgres"
        program.symlink_to("/bin/sleep")
        with subprocess.Popen([program, "60"], cwd=tmp_path / "there") as other:
            try:
                _until_named(other.pid, "postgres")
                assert not is_server(other.pid, tmp_path / "here")
                assert is_server(other.pid, tmp_path / "there")
            finally:
                other.kill()

    def test_nobody_is_none(self, tmp_path: Path) -> None:
        assert not is_server(999_999_999, tmp_path)


def _until_named(pid: int, name: str) -> None:
    while Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip() != name:
        os.sched_yield()
