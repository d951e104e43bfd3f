"""The conversation by LangGraph's prebuilt agent and its own chat model for OpenAI's API."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent
from pydantic import SecretStr

from bench.agent_loop.by_hand import KEY, MODEL, PROMPT, QUESTION, Converse
from bench.agent_loop.by_hand import look_up as look_it_up
from bench.conversation import STEPS, TOOL

PACKAGES = ("langgraph", "langgraph-prebuilt", "langchain-core", "langchain-openai", "openai")


@tool(TOOL)
async def look_up(what: str) -> str:
    """Look something up."""
    return await look_it_up(what)


def agent(base_url: str, **options: Any) -> Any:
    """The agent; its options are LangGraph's."""
    model = ChatOpenAI(model=MODEL, base_url=base_url, api_key=SecretStr(KEY))
    return create_react_agent(model, [look_up], prompt=PROMPT, **options)


@asynccontextmanager
async def open_contender(base_url: str) -> AsyncIterator[Converse]:
    """The agent without a checkpointer."""
    graph = agent(base_url)

    async def converse() -> str:
        state = await graph.ainvoke({"messages": [("user", QUESTION)]})
        assert len(state["messages"]) == 2 * STEPS
        return str(state["messages"][-1].content)

    yield converse
