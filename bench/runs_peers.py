"""The same conversation by other projects, as their documentation has it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from dbos import DBOS
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.prebuilt import create_react_agent
from psycopg import AsyncConnection
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool

from bench.conversation import ANSWER, RESULT, STEPS, TOOL, arguments, call_id
from services.common.ids import new_id


class ScriptedChatModel(BaseChatModel):
    """Answers at once."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_: Any, **__: Any) -> "ScriptedChatModel":
        """It knows the tool."""
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        step = sum(isinstance(message, AIMessage) for message in messages)
        if step < STEPS - 1:
            call = {"name": TOOL, "args": arguments(step), "id": call_id(step), "type": "tool_call"}
            said = AIMessage("", tool_calls=[call])
        else:
            said = AIMessage(ANSWER)
        return ChatResult(generations=[ChatGeneration(message=said)])

    async def _agenerate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        return self._generate(messages)


@tool(TOOL)
async def look_up(what: str) -> str:  # noqa: ARG001
    """Look something up."""
    return RESULT


class LangGraphRuns:
    """LangGraph's agent with its checkpoints in PostgreSQL."""

    def __init__(self, saver: AsyncPostgresSaver) -> None:
        self._graph = create_react_agent(ScriptedChatModel(), [look_up], checkpointer=saver)

    async def run(self) -> None:
        """One conversation; every step is committed before the next one."""
        state = await self._graph.ainvoke(
            {"messages": [("user", "What is it?")]},
            {"configurable": {"thread_id": new_id()}},
            durability="sync",
        )
        assert len(state["messages"]) == 2 * STEPS


@asynccontextmanager
async def langgraph_runs(dsn: str, *, connections: int) -> AsyncIterator[LangGraphRuns]:
    """LangGraph with a pool."""
    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool[AsyncConnection[DictRow]](
        dsn, min_size=connections, max_size=connections, kwargs=options, open=False
    ) as pool:
        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        yield LangGraphRuns(saver)


@DBOS.step()
async def ask(step: int) -> dict[str, Any]:
    """What the model says in a step."""
    if step < STEPS - 1:
        return {"calls": [{"id": call_id(step), "name": TOOL, "arguments": arguments(step)}]}
    return {"text": ANSWER}


@DBOS.step()
async def use_tool(call: dict[str, Any]) -> dict[str, str]:
    """What the tool gives."""
    return {"call_id": call["id"], "text": RESULT}


@DBOS.workflow()
async def converse() -> str:
    """The conversation as a workflow, every message of which is a recorded step."""
    for step in range(STEPS):
        said = await ask(step)
        for call in said.get("calls", ()):
            await use_tool(call)
    return str(said["text"])


class DbosRuns:
    """DBOS with a workflow for each conversation."""

    async def run(self) -> None:
        """One conversation; every step is committed before the next one."""
        assert await converse() == ANSWER


@asynccontextmanager
async def dbos_runs(dsn: str, *, connections: int) -> AsyncIterator[DbosRuns]:
    """DBOS with a pool."""
    DBOS(
        config={
            "name": "bench",
            "system_database_url": dsn,
            "sys_db_pool_size": connections,
            "log_level": "ERROR",
            "enable_otlp": False,
        }
    )
    DBOS.launch()
    try:
        yield DbosRuns()
    finally:
        DBOS.destroy()


__all__: Sequence[str] = ("DbosRuns", "LangGraphRuns", "dbos_runs", "langgraph_runs")
