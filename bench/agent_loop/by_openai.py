"""The conversation by hand on the openai package, as its documentation has it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from openai import AsyncOpenAI

from bench.agent_loop.by_hand import KEY, MESSAGES, MODEL, TOOLS, Converse, act

PACKAGES = ("openai", "httpx2")


@asynccontextmanager
async def open_contender(base_url: str) -> AsyncIterator[Converse]:
    """A loop with a client of its own."""
    async with AsyncOpenAI(base_url=base_url, api_key=KEY) as client:

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
