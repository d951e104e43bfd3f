"""The processes of a campaign, as those who break them see them."""

import asyncio
import itertools
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from asyncio.subprocess import Process as Child
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from services.common.tasks import background_tasks

ROOT = Path(__file__).parents[2]
NURSERY_LOG = "nursery.log"
_START_SECONDS = 60.0
_STOP_SECONDS = 20.0


@dataclass(slots=True, eq=False)
class Process:
    """One process that was started.

    Attributes:
        name: for people, and of its log.
        log: the file that it writes to.
        pid: its id, once it is `born`.
        frozen: set while it is stopped.
        ended: set once it has ended.
        status: how it ended; negative for a signal.
    """

    name: str
    log: Path
    pid: int = 0
    born: asyncio.Event = field(default_factory=asyncio.Event)
    frozen: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    status: int = 0

    @property
    def alive(self) -> bool:
        """Whether it runs, or could if it were not frozen."""
        return self.born.is_set() and not self.ended.is_set()

    def send(self, signum: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if signum is signal.SIGCONT:
            self.frozen.clear()
        if self.alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signum)

    async def kill(self) -> None:
        """SIGKILL it."""
        self.send(signal.SIGKILL)
        await self.ended.wait()

    async def stop(self) -> int:
        """Have it end in order, and give its status."""
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        async with asyncio.timeout(_STOP_SECONDS):
            await self.ended.wait()
        return self.status


class Nursery:
    """Starts processes by forking one that has imported everything; made by `open_nursery`."""

    def __init__(self, child: Child, logs: Path) -> None:
        self._child = child
        self._logs = logs
        self._ids = itertools.count(1)
        self._unborn: dict[int, Process] = {}
        self._processes: dict[int, Process] = {}
        self._ready = asyncio.Event()

    async def start(self, program: str, name: str, environment: Mapping[str, str]) -> Process:
        """Start a program such as `tests.chaos.agent`, which logs to a file of this name."""
        async with asyncio.timeout(_START_SECONDS):
            await self._ready.wait()
        process = Process(name, self._logs / f"{name}.log")
        number = next(self._ids)
        self._unborn[number] = process
        wanted = {
            "id": number,
            "program": program,
            "environment": dict(environment),
            "log": str(process.log),
        }
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(wanted).encode() + b"\n")
        await process.born.wait()
        return process

    async def listen(self) -> None:
        """Hear what becomes of the processes."""
        assert self._child.stdout is not None
        async for line in self._child.stdout:
            self._hear(json.loads(line))
        raise RuntimeError(f"the nursery ended: see {self._logs / NURSERY_LOG}")

    def _hear(self, news: Mapping[str, int]) -> None:
        if "ready" in news:
            self._ready.set()
        elif "id" in news:
            process = self._unborn.pop(news["id"])
            process.pid = news["pid"]
            self._processes[process.pid] = process
            process.born.set()
        elif "stopped" in news:
            self._processes[news["pid"]].frozen.set()
        else:
            process = self._processes.pop(news["pid"])
            process.status = news["ended"]
            process.ended.set()


@asynccontextmanager
async def open_nursery(logs: Path) -> AsyncIterator[Nursery]:
    """A nursery for as long as the block lasts; its processes do not outlive it.

    It gets ready beside the block; the first `start` waits for that.

    Args:
        logs: the folder, which exists, for what the processes write.
    """
    with (logs / NURSERY_LOG).open("ab") as log:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.chaos.nursery"),
            stdin=PIPE,
            stdout=PIPE,
            stderr=log,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'gen'}"},
        )
    nursery = Nursery(child, logs)
    try:
        async with background_tasks() as tasks:
            tasks.start("nursery", nursery.listen())
            yield nursery
    finally:
        with suppress(ProcessLookupError):
            child.kill()
        await child.wait()
