"""One contender, alone in its process: `python -m bench.agent_loop.contender NAME URL`.

It holds conversations as it is told to by lines of JSON, and answers each with what they took:

    {"conversations": 200, "at_once": 200}
    {"cpu": 0.5, "wall": 0.6, "memory": 0, "resident": 52428800, "held": 52428800}
"""

import asyncio
import gc
import json
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from importlib.metadata import version
from typing import Any

import psutil
import uvloop

from bench.conversation import ANSWER

_PROCESS = psutil.Process()
_WATCHED_EVERY = 0.02
_WARM = 3


async def hold(converse: Callable[[], Awaitable[str]], *, conversations: int, at_once: int) -> None:
    """Hold so many, so many at a time."""
    left = iter(range(conversations))

    async def one_after_another() -> None:
        for _ in left:
            assert await converse() == ANSWER

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(one_after_another())


async def measured(
    converse: Callable[[], Awaitable[str]], *, conversations: int, at_once: int, watch: bool
) -> dict[str, Any]:
    """What they take: seconds, and bytes of resident memory before, at most and after."""
    gc.collect()
    before = peak = _PROCESS.memory_info().rss

    async def look() -> None:
        nonlocal peak
        while True:
            peak = max(peak, _PROCESS.memory_info().rss)
            await asyncio.sleep(_WATCHED_EVERY)

    watcher = asyncio.create_task(look()) if watch else None
    wall, cpu = time.perf_counter(), time.process_time()
    await hold(converse, conversations=conversations, at_once=at_once)
    took = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    if watcher is not None:
        watcher.cancel()
    gc.collect()
    return {**took, "before": before, "peak": peak, "after": _PROCESS.memory_info().rss}


async def main(name: str, url: str) -> None:
    """Do as the lines say, until there are no more."""
    module = import_module(f"bench.agent_loop.by_{name}")
    opened: AbstractAsyncContextManager[Any] = module.open_contender(url)
    async with opened as converse:
        for _ in range(_WARM):
            await converse()
        gc.collect()
        gc.freeze()
        _tell({"versions": [f"{each} {version(each)}" for each in module.PACKAGES]})
        while line := await asyncio.to_thread(sys.stdin.readline):
            _tell(await measured(converse, **json.loads(line)))


def _tell(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2]))
