"""Services kept running on one machine."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from cli.local.errors import StartError
from cli.local.process import Pace
from cli.local.supervisor import keep_running, services_running
from cli.output import Output
from tests.cli.local.children import count, is_left, pids, service, until
from tests.cli.local.health import healthy

ROOT = Path(__file__).parents[3]
QUICK = Pace(start=20, stop=10, restart=0.05, steady=60, restarts=2)
OUTPUT = Output(as_json=False)


class Database:
    """One that ends and comes up when it is told to."""

    name = "the database"

    def __init__(self) -> None:
        self.asked, self.comes_up, self._over = (asyncio.Event() for _ in range(3))

    def end(self) -> None:
        self._over.set()

    async def ended(self) -> int:
        await self._over.wait()
        return 1

    async def start_again(self) -> None:
        self.asked.set()
        await self.comes_up.wait()
        self._over.clear()

    def log_tail(self) -> str:
        return "it is over"


class TestServicesRunning:
    async def test_all_serve_within_and_callers_stop_first(self, tmp_path: Path) -> None:
        services = [service(tmp_path, name=name) for name in ("callee", "caller")]
        async with services_running(services, logs=tmp_path, pace=QUICK):
            for each in services:
                assert await asyncio.to_thread(healthy, each.address)

        assert all(is_left(each.address) for each in services)
        ends = {each.name: (tmp_path / f"{each.name}.log").stat().st_mtime_ns for each in services}
        assert ends["caller"] < ends["callee"]

    async def test_one_that_does_not_come_up_takes_the_others_down(self, tmp_path: Path) -> None:
        good, bad = service(tmp_path, name="good"), service(tmp_path, name="bad", behaviour="fail")
        with pytest.raises(StartError, match=r"^bad ended with status 1:"):
            async with services_running([good, bad], logs=tmp_path, pace=QUICK):
                pass

        assert is_left(good.address)

    async def test_a_start_can_be_broken_off(self, tmp_path: Path) -> None:
        services = [
            service(tmp_path, name="good"),
            service(tmp_path, name="late", behaviour="unready"),
        ]

        async def run() -> None:
            async with services_running(services, logs=tmp_path, pace=QUICK):
                pass

        starting = asyncio.create_task(run())
        logs = [tmp_path / f"{each.name}.log" for each in services]
        await until(lambda: all(count(log, "serving") for log in logs))
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

        assert [count(log, "stopped") for log in logs] == [1, 1]


class TestKeepRunning:
    async def test_one_that_is_killed_is_started_again(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        log = tmp_path / "small.log"
        async with services_running([service(tmp_path)], logs=tmp_path, pace=QUICK) as processes:
            keeping = asyncio.create_task(keep_running(processes, OUTPUT, pace=QUICK))
            os.kill(pids(log)[0], signal.SIGKILL)
            await until(lambda: count(log, "serving") == 2)
            await processes[0].ready()
            keeping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await keeping

        assert len(set(pids(log))) == 2
        assert capsys.readouterr().err == "small was ended by SIGKILL; starting it again\n"
        assert count(log, "stopped") == 1

    async def test_the_database_is_started_again_and_services_wait_for_it(
        self, tmp_path: Path
    ) -> None:
        """A service needs it to start, and would only use up its tries."""
        log, database = tmp_path / "small.log", Database()
        async with services_running([service(tmp_path)], logs=tmp_path, pace=QUICK) as processes:
            keeping = asyncio.create_task(
                keep_running(processes, OUTPUT, database=database, pace=QUICK)
            )
            database.end()
            await asyncio.wait_for(database.asked.wait(), 10)
            os.kill(pids(log)[0], signal.SIGKILL)
            await processes[0].ended()
            await asyncio.sleep(10 * QUICK.restart)
            started_without = count(log, "serving")
            database.comes_up.set()
            await until(lambda: count(log, "serving") == 2)
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

        assert started_without == 1

    async def test_one_that_keeps_ending_ends_all_with_its_log(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        good = service(tmp_path, name="good")
        bad = service(tmp_path, name="bad", behaviour="mortal")

        async def run() -> None:
            async with services_running([good, bad], logs=tmp_path, pace=QUICK) as processes:
                (tmp_path / "death").touch()
                await keep_running(processes, OUTPUT, pace=QUICK)

        with pytest.raises(
            StartError, match=r"^bad keeps ending, at last it was ended by SIGKILL:"
        ):
            await asyncio.wait_for(run(), 40)

        assert len(pids(tmp_path / "bad.log")) == 3
        assert (len(pids(tmp_path / "good.log")), is_left(good.address)) == (1, True)
        assert capsys.readouterr().err.count("starting it again") == 2

    async def test_one_that_does_not_come_up_again_ends_all(self, tmp_path: Path) -> None:
        impatient = Pace(start=0.5, stop=10, restart=0.05)

        async def run() -> None:
            services = [service(tmp_path)]
            async with services_running(services, logs=tmp_path, pace=QUICK) as processes:
                (tmp_path / "death.slow").touch()
                os.kill(pids(tmp_path / "small.log")[0], signal.SIGKILL)
                processes[0]._pace = impatient
                await keep_running(processes, OUTPUT, pace=impatient)

        with pytest.raises(StartError, match=r"^small was not ready after 0\.5 s:"):
            await asyncio.wait_for(run(), 40)

    async def test_one_that_ran_well_for_long_starts_counting_afresh(self, tmp_path: Path) -> None:
        log, patient = tmp_path / "small.log", Pace(20, 10, 0.01, steady=0, restarts=1)
        async with services_running([service(tmp_path)], logs=tmp_path, pace=patient) as processes:
            keeping = asyncio.create_task(keep_running(processes, OUTPUT, pace=patient))
            for number in range(1, 4):
                os.kill(pids(log)[-1], signal.SIGKILL)
                await until(lambda: count(log, "serving") == number + 1)  # noqa: B023

            assert not keeping.done()
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)


_SUPERVISOR = """
import asyncio, sys
from pathlib import Path
from cli.local.process import Pace
from cli.local.supervisor import keep_running, services_running
from cli.output import Output
from tests.cli.local.children import service

async def main():
    folder = Path(sys.argv[1])
    services = [service(folder, name=name) for name in ("one", "two")]
    async with services_running(services, logs=folder) as processes:
        print(*(each.address for each in services), flush=True)
        await keep_running(processes, Output(as_json=False))

asyncio.run(main())
"""


class TestSupervisorsEnd:
    async def test_when_it_is_killed_its_children_leave(self, tmp_path: Path) -> None:
        supervisor = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _SUPERVISOR, str(tmp_path)), stdout=PIPE, cwd=ROOT
        )
        assert supervisor.stdout is not None
        addresses = (await asyncio.wait_for(supervisor.stdout.readline(), 30)).decode().split()
        supervisor.kill()
        await supervisor.wait()
        await until(lambda: all(is_left(address) for address in addresses))
        logs = [tmp_path / "one.log", tmp_path / "two.log"]
        await until(lambda: all(count(log, "stopped") for log in logs))

        assert [len(pids(log)) for log in logs] == [1, 1]
