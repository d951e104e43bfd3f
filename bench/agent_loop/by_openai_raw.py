"""The conversation by hand through the openai package's client, its types passed by."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
from openai import AsyncOpenAI, DefaultAioHttpClient

from bench.agent_loop.by_hand import KEY, Converse, hand_loop

PACKAGES = ("openai", "aiohttp")


@asynccontextmanager
async def open_contender(base_url: str) -> AsyncIterator[Converse]:
    """A loop with a client of its own."""
    async with AsyncOpenAI(
        base_url=base_url, api_key=KEY, http_client=DefaultAioHttpClient()
    ) as client:

        async def ask(body: object) -> bytes:
            response = await client.post("/chat/completions", cast_to=httpx2.Response, body=body)
            return response.content

        yield hand_loop(ask)
