"""Keeps what runs on one machine running, and stops the services in order."""

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
    """A process that is to run all the time."""

    @property
    def name(self) -> str:
        """What people call it."""

    async def ended(self) -> int:
        """The exit status, once it has ended; that of a signal is negative."""

    async def start_again(self) -> None:
        """Starts it anew, and returns once it does its work.

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
    """Runs the services until the context is left, then stops them, callers first.

    Args:
        services: callees first.
        logs: the folder for one log a service.
        pace: how patient to be.

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
    """Starts again whatever ends, for as long as this is awaited.

    Args:
        services: what to keep running.
        output: is told of each end.
        database: what the services need, where it is ours; while it is down none is started.
        pace: how patient to be.

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
    """Starts it again, once what it needs is there, whenever it ends; `up` is clear in between."""
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
