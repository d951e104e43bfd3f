"""PostgreSQL's programs as child processes."""

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.local.launch import Launch
from cli.local.signals import send

_FORCED_GRACE = 5.0


@dataclass(frozen=True, slots=True)
class Programs:
    """Starts PostgreSQL's programs, each in a session of its own so that Ctrl-C does not reach it.

    Attributes:
        binaries: the folder that holds them.
        log: the descriptor for their output.
        lock: the descriptor that they and their children inherit, and so keep locked.
    """

    binaries: Path
    log: int
    lock: int

    async def choose(self, launches: Sequence[Launch]) -> Launch:
        """The first of `launches` that is permitted here; the last one is not tried."""
        for launch in launches[:-1]:
            if await self.run(launch, "postgres", "--version") == 0:
                return launch
        return launches[-1]

    async def run(self, launch: Launch, program: str, *arguments: str) -> int:
        """Run a program to its end; returns its exit status."""
        process = await self.start(launch, program, *arguments)
        try:
            return await process.wait()
        finally:
            await stop(process, grace=_FORCED_GRACE)

    async def start(self, launch: Launch, program: str, *arguments: str) -> Process:
        """Start a program; the caller stops it."""
        return await asyncio.create_subprocess_exec(
            *launch.command(self.binaries / program, *arguments),
            stdin=DEVNULL,
            stdout=self.log,
            stderr=self.log,
            cwd="/",
            env={"PATH": os.defpath, "LC_ALL": "C"},
            pass_fds=[self.lock],
            start_new_session=True,
        )


async def stop(process: Process, *, grace: float) -> None:
    """End a program: a fast shutdown for `grace` seconds, then an immediate one, then by force."""
    steps = ((signal.SIGINT, grace), (signal.SIGQUIT, _FORCED_GRACE), (signal.SIGKILL, None))
    for number, patience in steps:
        if process.returncode is not None:
            return
        send(process, number)
        try:
            await asyncio.wait_for(process.wait(), patience)
        except TimeoutError:
            continue
