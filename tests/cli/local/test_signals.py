"""Signals to children; `test_process` has one that was killed meanwhile."""

import asyncio
import signal

from cli.local.signals import send


async def child() -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec("sleep", "60")


async def test_it_reaches_the_child() -> None:
    process = await child()

    send(process, signal.SIGTERM)

    assert await asyncio.wait_for(process.wait(), 10) == -signal.SIGTERM


async def test_one_that_is_gone_is_left_alone() -> None:
    process = await asyncio.create_subprocess_exec("true")
    await process.wait()

    send(process, signal.SIGTERM)

    assert process.returncode == 0
