"""Runs a service as a process."""

import gc
import sys
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager

import uvloop

from services.common.errors import ServiceError, StartupError
from services.common.server import stop_signal
from services.common.tasks import background_tasks

# Most objects of a call are freed as soon as nothing refers to them; the collector finds few more.
_COLLECT_AFTER = (10_000, 20, 20)
_UNREADABLE = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)


def run_service(name: str, service: Coroutine[None, None, None]) -> None:
    """Run a service to its end; to be called once, by `main`.

    What keeps it from running, such as an address in use, a database that is down or a missing key,
    is reported in one line on stderr and ends the process with status 1.
    """
    try:
        uvloop.run(service)
    except (StartupError, ServiceError, *_UNREADABLE) as error:
        line = " ".join(str(error).split())
        sys.exit(f"{name}: {line}")


async def until_stopped(service: AbstractAsyncContextManager[object]) -> None:
    """Run a service until the process is asked to stop.

    The signal handlers are installed first: whoever reads that it is serving may stop it at once.
    """
    async with background_tasks() as tasks:
        asked = tasks.start("stop signal", stop_signal())
        async with service:
            _spare_collector()
            await asked


def _spare_collector() -> None:
    """Have the garbage collector run more rarely, and not look at what was made at the start.

    Else every delivered message pays for walks over what lives as long as the process: modules,
    servers, descriptors.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
