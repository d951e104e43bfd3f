"""The model server and the contenders, each in a process of its own."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from bench.stream.processes import CORES, ROOT, connected
from cli.local.ports import free_ports

CONTENDERS: Final[Mapping[str, str]] = {
    "aiohttp": "by hand on aiohttp",
    "openai": "by hand on openai",
    "chatmind": "ChatMind",
    "langgraph": "LangGraph",
    "openai_agents": "OpenAI Agents SDK",
    "pydantic_ai": "Pydantic AI",
    "openai_aiohttp": "openai over aiohttp",
    "openai_raw": "the same without types",
}
"""What the tables call them, by their module `by_…`."""

USUAL: Final = tuple(CONTENDERS)[:6]
"""Those who take part unless others are named."""

_LINE_LIMIT = 1024 * 1024


class Process:
    """A process that does as it is told by lines of JSON, and answers with lines of JSON."""

    def __init__(self, process: asyncio.subprocess.Process, hello: Mapping[str, Any]) -> None:
        self._process = process
        self.hello = hello

    async def do(self, **order: Any) -> dict[str, Any]:
        """What it answers to an order."""
        self.tell(**order)
        return await self.answer()

    def tell(self, **order: Any) -> None:
        """Give an order, and do not wait for the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")

    async def answer(self) -> dict[str, Any]:
        """Its next answer."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        assert line, "the process has ended"
        answer: dict[str, Any] = json.loads(line)
        return answer


@asynccontextmanager
async def process(module: str, *arguments: str) -> AsyncIterator[Process]:
    """A module of this package as a process that has said hello, on all cores but the last."""
    started = await _start(module, arguments, stdin=asyncio.subprocess.PIPE)
    try:
        os.sched_setaffinity(started.pid, CORES[:-1] or CORES)
        assert started.stdout is not None
        line = await started.stdout.readline()
        assert line, f"{module} {arguments[:1]} did not start"
        yield Process(started, json.loads(line))
    finally:
        await _end(started)


@asynccontextmanager
async def model_server() -> AsyncIterator[str]:
    """The scripted model's address, up to and without its milliseconds, on the last core."""
    port = next(free_ports())
    started = await _start("server", [str(port)], stdin=asyncio.subprocess.DEVNULL)
    try:
        os.sched_setaffinity(started.pid, CORES[-1:])
        await connected(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        await _end(started)


def contender(name: str, server: str, *, milliseconds: int) -> Any:
    """The process of a contender whose model takes so long."""
    return process("contender", name, f"{server}/{milliseconds}/v1")


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()


async def _start(module: str, arguments: Sequence[str], *, stdin: int) -> Any:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"bench.agent_loop.{module}", *arguments),
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        limit=_LINE_LIMIT,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "gen")])},
    )
