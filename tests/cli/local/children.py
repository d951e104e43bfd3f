"""Small services that behave well or badly, as real processes."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from cli.local.ports import free_ports, is_free
from cli.local.services import LocalService

_ROOT = Path(__file__).parents[3]
_SERVICE = """
import os, signal, sys, threading
from tests.cli.local.health import serving

behaviour = os.environ["BEHAVIOUR"]
print("pid", os.getpid(), flush=True)
if behaviour == "fail":
    sys.exit("no database")
stopped = threading.Event()
if behaviour == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
ready = behaviour != "unready" and not os.path.exists(os.environ["DEATH"] + ".slow")
with serving(os.environ["ADDRESS"], ready=ready):
    print("serving", flush=True)
    while behaviour == "mortal" and not stopped.wait(0.02):
        if os.path.exists(os.environ["DEATH"]):
            os.kill(os.getpid(), signal.SIGKILL)
    stopped.wait()
print("stopped", flush=True)
"""


def write_service(folder: Path) -> None:
    """Puts the service's module where `service` expects it."""
    (folder / "small_service.py").write_text(_SERVICE, encoding="utf-8")


def service(folder: Path, *, name: str = "small", behaviour: str = "serve") -> LocalService:
    """A service to run.

    Args:
        folder: where its module is put.
        name: what the supervisor calls it.
        behaviour: `serve`; `fail` at once; be `mortal`, which is to be killed once there is a file
            `death` in the folder; be `deaf` to SIGTERM; stay `unready`, as all do once there is a
            file `death.slow`.
    """
    write_service(folder)
    address = f"127.0.0.1:{next(free_ports())}"
    environment = {
        **os.environ,
        "PYTHONPATH": f"{folder}{os.pathsep}{_ROOT}",
        "ADDRESS": address,
        "BEHAVIOUR": behaviour,
        "DEATH": str(folder / "death"),
        "GRPC_VERBOSITY": "NONE",
    }
    return LocalService(name, "small_service", address, environment)


def pids(log: Path) -> list[int]:
    """The ids of the processes that wrote a log, in their order."""
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return [int(line.split()[1]) for line in lines if line.startswith("pid ")]


def count(log: Path, text: str) -> int:
    """How often a log says this."""
    return log.read_text(encoding="utf-8").count(text) if log.exists() else 0


async def until(holds: Callable[[], bool]) -> None:
    """Waits for what gives no sign of its own."""
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def is_left(address: str) -> bool:
    """Whether nobody listens at an address."""
    return is_free(int(address.rpartition(":")[2]))
