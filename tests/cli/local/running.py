"""Embedded servers in other processes, and questions to them."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from cli.local.cluster import DataDirectory
from cli.local.launch import Launch, find_binaries, launches
from cli.local.ports import free_ports
from cli.local.programs import Programs, stop

ROOT = Path(__file__).parents[3]

_SUPERVISOR = """
import asyncio, sys
from pathlib import Path
from cli.local.postgres import EmbeddedPostgres

async def main():
    async with EmbeddedPostgres(Path(sys.argv[-1]), settings={"fsync": "off"}) as server:
        print(server.pid, await server.create_database(), flush=True)
        await asyncio.to_thread(sys.stdin.read)

if sys.argv[1] == "uvloop":
    import uvloop
    uvloop.run(main())
else:
    asyncio.run(main())
"""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A supervisor in a process of its own, and its server."""

    process: Process
    server_pid: int
    dsn: str


@asynccontextmanager
async def elsewhere(
    data_dir: Path, *, loop: str = "asyncio", launch: Launch | None = None
) -> AsyncIterator[Elsewhere]:
    """A server over `data_dir` whose supervisor is another process, perhaps another user's."""
    arguments = ["-c", _SUPERVISOR, loop, "-D", str(data_dir)]
    command: Sequence[str] = [sys.executable, *arguments]
    if launch is not None:
        command = launch.command(Path(sys.executable), *arguments)
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=PIPE,
        stdout=PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        pid, dsn = (await asyncio.wait_for(process.stdout.readline(), 30)).decode().split()
        yield Elsewhere(process, int(pid), dsn)
    finally:
        process.stdin.close()
        await asyncio.wait_for(process.wait(), 10)


async def start_orphan(data_dir: Path, *, locked: bool = True) -> Process:
    """A server over `data_dir` that no supervisor minds; without its lock, a stranger's."""
    files = DataDirectory(data_dir)
    lock, log = await files.claim(), files.open_log()
    try:
        programs = Programs(find_binaries(), log=log, lock=lock if locked else log)
        way = await programs.choose(launches(files.cluster))
        port = next(free_ports())
        settings = ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]
        place = ["-D", str(files.cluster), "-p", str(port)]
        process = await programs.start(way, "postgres", *place, *settings)
        async with asyncio.timeout(20):
            while not files.is_ready(process.pid):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    finally:
        os.close(lock)
        os.close(log)
    return process


async def end(process: Process) -> None:
    """Stop a server that `start_orphan` gave."""
    await stop(process, grace=10)


async def gone(pid: int) -> None:
    """Wait until no process has this id."""
    with suppress(ProcessLookupError):
        while True:
            os.kill(pid, 0)
            await asyncio.sleep(0.02)


def children_of(pid: int) -> list[int]:
    """The ids of a process's children."""
    tasks = Path("/proc", str(pid), "task", str(pid), "children")
    return [int(child) for child in tasks.read_text(encoding="ascii").split()]


async def one(dsn: str, query: str) -> object:
    """The first column of the first row of the answer."""
    session = await asyncpg.connect(dsn)
    try:
        return await session.fetchval(query)
    finally:
        await session.close()


async def execute(dsn: str, statement: str) -> None:
    """Run a statement, committed."""
    session = await asyncpg.connect(dsn)
    try:
        await session.execute(statement)
    finally:
        await session.close()
