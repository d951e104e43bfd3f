"""One service as a process."""

import sys
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager

import uvloop

from services.common.errors import ServiceError
from services.common.server import ListenError, stop_signal
from services.common.tasks import background_tasks


def run_service(name: str, service: Coroutine[None, None, None]) -> None:
    """Runs a service to its end; to be called once, by `main`.

    What keeps it from working, such as an address in use, a database that is not there or a missing
    key, is told in one line on stderr and ends the process with 1.
    """
    try:
        uvloop.run(service)
    except (ServiceError, ListenError, FileNotFoundError, PermissionError) as error:
        told = " ".join(str(error).split())
        sys.exit(f"{name}: {told}")


async def until_stopped(service: AbstractAsyncContextManager[object]) -> None:
    """Runs a service until the process is asked to stop.

    The signals are listened to first: whoever reads that the service serves may ask it to stop.
    """
    async with background_tasks() as tasks:
        asked = tasks.start("stop signal", stop_signal())
        async with service:
            await asked
