"""The conversation by Pydantic AI."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from bench.agent_loop.by_hand import KEY, MODEL, PROMPT, QUESTION, Converse, look_up

PACKAGES = ("pydantic-ai-slim", "openai")


@asynccontextmanager
async def open_contender(base_url: str) -> AsyncIterator[Converse]:
    """An agent with a client of its own."""
    provider = OpenAIProvider(base_url=base_url, api_key=KEY)
    agent = Agent(OpenAIChatModel(MODEL, provider=provider), system_prompt=PROMPT, tools=[look_up])

    async def converse() -> str:
        return str((await agent.run(QUESTION)).output)

    yield converse
