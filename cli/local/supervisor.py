"""Keeps the services of one machine running, and stops them in order."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from cli.local.errors import StartError
from cli.local.process import EndedError, Pace, ServiceProcess, ending
from cli.local.services import LocalService
from cli.output import Output
from services.common.tasks import task_group


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
    processes: Sequence[ServiceProcess], output: Output, *, pace: Pace | None = None
) -> None:
    """Starts again whatever ends, for as long as this is awaited.

    Raises:
        StartError: a service keeps ending, or does not come up again.
    """
    async with task_group() as group:
        for process in processes:
            group.create_task(_keep_running(process, output, pace=pace or Pace()))


async def _keep_running(process: ServiceProcess, output: Output, *, pace: Pace) -> None:
    name, in_a_row, started = process.service.name, 0, time.monotonic()
    while True:
        how = ending(await process.ended())
        in_a_row = 1 if time.monotonic() - started > pace.steady else in_a_row + 1
        if in_a_row > pace.restarts:
            raise StartError(f"{name} keeps ending, at last it {how}:\n{process.log_tail()}")
        output.note(f"{name} {how}; starting it again")
        await asyncio.sleep(pace.restart)
        started = time.monotonic()
        await process.start()
        with suppress(EndedError):  # counted in the next round
            await process.ready()
