"""Keeps the processes on one machine running, and stops them in order."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

from cli.local.errors import EndedError, StartError
from cli.local.process import Pace, ServiceProcess, ending
from cli.local.services import LocalService
from cli.output import Output
from services.common.tasks import task_group


class Supervised(Protocol):
    """A process that should always run."""

    @property
    def name(self) -> str:
        """Its name for people."""

    async def ended(self) -> int:
        """Wait until it ends; returns its exit status, which is negative for a signal."""

    async def start_again(self) -> None:
        """Start it again, and return once it works.

        Raises:
            EndedError: it ended instead.
            StartError: it does not come up.
        """

    def log_tail(self) -> str:
        """The last lines of its log."""


@asynccontextmanager
async def services_running(
    services: Sequence[LocalService], *, logs: Path, pace: Pace | None = None
) -> AsyncIterator[list[ServiceProcess]]:
    """Run the services for as long as the block lasts, then stop them, callers first.

    Args:
        services: in the order of their start, callees first.
        logs: the folder for their logs.
        pace: the times to use.

    Raises:
        StartError: a service did not come up; the others are stopped again.
    """
    async with AsyncExitStack() as stack:
        processes = []
        for service in services:
            log = logs / f"{service.name}.log"
            process = ServiceProcess(service, log, pace=pace or Pace())
            await process.start()
            stack.push_async_callback(process.stop)
            processes.append(process)
        async with task_group() as group:
            for process in processes:
                group.create_task(process.ready())
        yield processes


async def keep_running(
    services: Sequence[Supervised],
    output: Output,
    *,
    database: Supervised | None = None,
    pace: Pace | None = None,
) -> None:
    """Restart whatever ends, until cancelled.

    Args:
        services: the services to keep running.
        output: gets a note about each restart.
        database: the database, if it is ours; while it is down, no service is started.
        pace: the times to use.

    Raises:
        StartError: something keeps ending, or does not come up again.
    """
    pace = pace or Pace()
    database_up, needs_nothing = asyncio.Event(), asyncio.Event()
    database_up.set()
    needs_nothing.set()
    async with task_group() as group:
        if database is not None:
            keeping = _keep_running(
                database, output, needs=needs_nothing, up=database_up, pace=pace
            )
            group.create_task(keeping)
        for service in services:
            keeping = _keep_running(
                service, output, needs=database_up, up=asyncio.Event(), pace=pace
            )
            group.create_task(keeping)


async def _keep_running(
    process: Supervised, output: Output, *, needs: asyncio.Event, up: asyncio.Event, pace: Pace
) -> None:
    """Restart a process whenever it ends, once `needs` is set; `up` is clear while it is down."""
    name, in_a_row, started = process.name, 0, time.monotonic()
    while True:
        how = ending(await process.ended())
        up.clear()
        in_a_row = 1 if time.monotonic() - started > pace.steady else in_a_row + 1
        if in_a_row > pace.restarts:
            raise StartError(f"{name} keeps ending, at last it {how}:\n{process.log_tail()}")
        output.note(f"{name} {how}; starting it again")
        await asyncio.sleep(pace.restart)
        await needs.wait()
        started = time.monotonic()
        with suppress(EndedError):  # counted in the next round
            await process.start_again()
            up.set()
