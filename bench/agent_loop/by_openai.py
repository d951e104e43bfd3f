"""The conversation by hand on the openai package, as its documentation has it."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from openai import AsyncOpenAI

from bench.agent_loop.by_hand import KEY, MESSAGES, MODEL, TOOLS, Converse, act

PACKAGES = ("openai", "httpx2")


def open_contender(base_url: str) -> AbstractAsyncContextManager[Converse]:
    """A loop with a client of its own."""
    return open_loop(base_url)


@asynccontextmanager
async def open_loop(base_url: str, **options: Any) -> AsyncIterator[Converse]:
    """The same with options of the client."""
    async with AsyncOpenAI(base_url=base_url, api_key=KEY, **options) as client:

        async def converse() -> str:
            messages = list(MESSAGES)
            while True:
                reply = await client.chat.completions.create(
                    model=MODEL, messages=messages, tools=TOOLS
                )
                said = reply.choices[0].message
                messages.append(said)
                if not said.tool_calls:
                    return said.content or ""
                for call in said.tool_calls:
                    assert call.type == "function"
                    text = await act(call.function.name, call.function.arguments)
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": text})

        yield converse
