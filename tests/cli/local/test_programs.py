"""PostgreSQL's programs as child processes."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cli.local import programs as module
from cli.local.cluster import DataDirectory
from cli.local.launch import Launch, find_binaries, launches
from cli.local.programs import Programs, stop

NO_SUCH_USER = 2**32 - 1


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The file that the programs write to."""
    return tmp_path / "log"


@pytest.fixture
async def programs(tmp_path: Path, log: Path) -> AsyncIterator[Programs]:
    """The real programs, with their lock and their log in a folder of this test."""
    lock = await DataDirectory(tmp_path).claim()
    output = os.open(log, os.O_WRONLY | os.O_CREAT)
    yield Programs(find_binaries(), log=output, lock=lock)
    os.close(output)
    os.close(lock)


@pytest.fixture
def itself() -> Launch:
    """A start without any change of user."""
    return Launch("self", os.geteuid(), os.getegid())


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def _stubborn(folder: Path) -> Programs:
    """A program named `postgres` that heeds no signal it can refuse, and says when it is up."""
    script = folder / "postgres"
    script.write_text("#!/bin/sh\ntrap '' INT QUIT\necho up\nwhile :; do sleep 0.05; done\n")
    script.chmod(0o755)
    return Programs(folder, log=os.open(folder / "log", os.O_WRONLY | os.O_CREAT), lock=0)


class TestRun:
    async def test_gives_the_exit_code_and_logs_the_output(
        self, programs: Programs, log: Path, itself: Launch
    ) -> None:
        assert await programs.run(itself, "postgres", "--version") == 0
        assert await programs.run(itself, "pg_config", "--nonsense") == 1
        assert "postgres (PostgreSQL) 18" in _read(log)
        assert "--nonsense" in _read(log)

    async def test_passes_on_nothing_from_the_environment(
        self, programs: Programs, itself: Launch, log: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PGDATA", "/elsewhere")
        monkeypatch.setenv("LC_ALL", "xx_YY")

        assert await programs.run(itself, "pg_controldata") == 1
        assert "no data directory specified" in _read(log)


class TestChoose:
    async def test_takes_the_next_way_if_one_is_forbidden(
        self, programs: Programs, itself: Launch
    ) -> None:
        forbidden = Launch("namespace", NO_SUCH_USER, NO_SUCH_USER)

        assert await programs.choose([forbidden, itself]) == itself

    @pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
    async def test_takes_the_first_that_is_permitted(self, programs: Programs) -> None:
        ways = [*launches(Path("/nowhere")), Launch("user", NO_SUCH_USER, NO_SUCH_USER)]

        assert await programs.choose(ways) == ways[0]


class TestStop:
    async def test_forces_what_does_not_heed(
        self, tmp_path: Path, itself: Launch, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "_FORCED_GRACE", 0.1)
        process = await _stubborn(tmp_path).start(itself, "postgres")
        async with asyncio.timeout(10):
            while "up" not in _read(tmp_path / "log"):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

        await asyncio.wait_for(stop(process, grace=0.1), 10)

        assert process.returncode == -9

    async def test_has_nothing_to_do_with_what_has_ended(
        self, programs: Programs, itself: Launch
    ) -> None:
        process = await programs.start(itself, "postgres", "--version")
        await process.wait()

        await stop(process, grace=0)

        assert process.returncode == 0
