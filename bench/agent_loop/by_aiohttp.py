"""The conversation by hand on aiohttp: as little as it takes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from bench.agent_loop.by_hand import Converse, hand_loop

PACKAGES = ("aiohttp",)


@asynccontextmanager
async def open_contender(base_url: str) -> AsyncIterator[Converse]:
    """A loop with a session of its own."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def ask(body: object) -> bytes:
            async with session.post(f"{base_url}/chat/completions", json=body) as response:
                return await response.read()

        yield hand_loop(ask)
