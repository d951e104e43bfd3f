"""The conversation by hand on aiohttp: as little as it takes."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from bench.agent_loop.by_hand import MESSAGES, MODEL, TOOLS, Converse, act

PACKAGES = ("aiohttp",)


@asynccontextmanager
async def open_contender(base_url: str) -> AsyncIterator[Converse]:
    """A loop with a session of its own."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        url = f"{base_url}/chat/completions"

        async def converse() -> str:
            messages = list(MESSAGES)
            while True:
                body = {"model": MODEL, "messages": messages, "tools": TOOLS}
                async with session.post(url, json=body) as response:
                    reply = json.loads(await response.read())
                said = reply["choices"][0]["message"]
                messages.append(said)
                if not said.get("tool_calls"):
                    return str(said["content"])
                for call in said["tool_calls"]:
                    function = call["function"]
                    text = await act(function["name"], function["arguments"])
                    messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})

        yield converse
