"""The conversation by the OpenAI Agents SDK, over chat completions and with tracing off."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

from bench.agent_loop.by_hand import KEY, MODEL, PROMPT, QUESTION, Converse, look_up

PACKAGES = ("openai-agents", "openai")


@asynccontextmanager
async def open_contender(base_url: str) -> AsyncIterator[Converse]:
    """An agent with a client of its own."""
    set_tracing_disabled(True)
    async with AsyncOpenAI(base_url=base_url, api_key=KEY) as client:
        agent = Agent(
            name="bench",
            instructions=PROMPT,
            model=OpenAIChatCompletionsModel(model=MODEL, openai_client=client),
            tools=[function_tool(look_up)],
        )

        async def converse() -> str:
            return str((await Runner.run(agent, QUESTION)).final_output)

        yield converse
