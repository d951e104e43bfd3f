"""One service as a child process."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from cli.local.errors import StartError
from cli.local.process import Pace, ServiceProcess, ending
from cli.local.services import LocalService
from tests.cli.local.children import count, is_left, pids, service, until
from tests.cli.local.health import healthy

QUICK = Pace(start=20, stop=10)


def process_of(service: LocalService, folder: Path, pace: Pace = QUICK) -> ServiceProcess:
    return ServiceProcess(service, folder / "small.log", pace=pace)


class TestReady:
    async def test_it_returns_once_the_service_serves(self, tmp_path: Path) -> None:
        process = process_of(service(tmp_path), tmp_path)
        await process.start()
        await process.ready()
        try:
            assert await asyncio.to_thread(healthy, process.service.address)
        finally:
            await process.stop()

        assert is_left(process.service.address)

    async def test_one_that_ends_instead_is_told_with_its_log(self, tmp_path: Path) -> None:
        process = process_of(service(tmp_path, behaviour="fail"), tmp_path)
        await process.start()
        with pytest.raises(StartError, match=r"^small ended with status 1:\npid [\s\S]*database$"):
            await process.ready()

    async def test_one_that_takes_too_long_is_told(self, tmp_path: Path) -> None:
        unready = service(tmp_path, behaviour="unready")
        process = process_of(unready, tmp_path, Pace(start=0.5, stop=10))
        await process.start()
        try:
            with pytest.raises(StartError, match=r"^small was not ready after 0\.5 s:"):
                await process.ready()
        finally:
            await process.stop()

    async def test_waiting_can_be_given_up(self, tmp_path: Path) -> None:
        process = process_of(service(tmp_path, behaviour="unready"), tmp_path)
        await process.start()
        waiting = asyncio.create_task(process.ready())
        await until(lambda: count(tmp_path / "small.log", "serving") == 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await process.stop()

        assert await process.ended() == 0

    def test_one_that_was_not_started_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(StartError, match=r"^small was not started$"):
            asyncio.run(process_of(service(tmp_path), tmp_path).ended())


class TestStart:
    async def test_a_folder_of_the_same_name_is_not_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whatever lies where ChatMind is started, the installed modules are run."""
        (tmp_path / "here/cli").mkdir(parents=True)
        (tmp_path / "here/cli/__init__.py").write_text("raise SystemExit(9)", encoding="utf-8")
        monkeypatch.chdir(tmp_path / "here")
        process = process_of(service(tmp_path), tmp_path)
        await process.start()
        await process.ready()
        await process.stop()

        assert await process.ended() == 0

    async def test_logs_are_kept_over_starts_and_do_not_grow_for_ever(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("cli.local.logs._MOST_BYTES", 200)
        process = process_of(service(tmp_path, behaviour="fail"), tmp_path)
        for _ in range(2):
            await process.start()
            await process.ended()
        assert len(pids(tmp_path / "small.log")) == 2

        (tmp_path / "small.log").write_text("x" * 201, encoding="utf-8")
        await process.start()
        await process.ended()

        assert len(pids(tmp_path / "small.log")) == 1
        assert (tmp_path / "small.log.1").read_text(encoding="utf-8") == "x" * 201


class TestStop:
    async def test_it_lets_the_service_end_by_itself(self, tmp_path: Path) -> None:
        process = process_of(service(tmp_path), tmp_path)
        await process.start()
        await process.ready()
        await process.stop()
        await process.stop()

        assert await process.ended() == 0
        assert count(tmp_path / "small.log", "stopped") == 1

    async def test_one_that_does_not_listen_is_made_to(self, tmp_path: Path) -> None:
        deaf = service(tmp_path, behaviour="deaf")
        process = process_of(deaf, tmp_path, Pace(start=20, stop=0.2))
        await process.start()
        await process.ready()
        started = time.monotonic()
        await process.stop()

        assert await process.ended() == -signal.SIGKILL
        assert time.monotonic() - started >= 0.2

    async def test_one_that_was_killed_meanwhile_needs_no_stop(self, tmp_path: Path) -> None:
        process = process_of(service(tmp_path), tmp_path)
        await process.start()
        await process.ready()
        os.kill(pids(tmp_path / "small.log")[0], signal.SIGKILL)
        await process.stop()

        assert await process.ended() == -signal.SIGKILL


class TestLogTail:
    def test_it_is_the_last_lines_however_long_the_log(self, tmp_path: Path) -> None:
        process = process_of(service(tmp_path), tmp_path)
        lines = [f"line {number} 中" for number in range(100_000)]
        (tmp_path / "small.log").write_text("\n".join(lines), encoding="utf-8")

        assert process.log_tail() == "\n".join(lines[-8:])

    def test_bytes_that_are_no_text_do_no_harm(self, tmp_path: Path) -> None:
        (tmp_path / "small.log").write_bytes(b"\xff\n")

        assert process_of(service(tmp_path), tmp_path).log_tail() == "\ufffd"


class TestEnding:
    @pytest.mark.parametrize(
        ("status", "words"),
        [(0, "ended with status 0"), (3, "ended with status 3"), (-9, "was ended by SIGKILL")],
    )
    def test_it_is_told_in_words(self, status: int, words: str) -> None:
        assert ending(status) == words

    async def test_lines_of_an_earlier_run_are_not_told(self, tmp_path: Path) -> None:
        (tmp_path / "small.log").write_text("an earlier run\n", encoding="utf-8")
        process = process_of(service(tmp_path), tmp_path)
        await process.start()
        try:
            assert "an earlier run" not in process.log_tail()
        finally:
            await process.stop()
