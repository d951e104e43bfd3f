"""How many durable steps a second runs take, beside other ways to keep a conversation.

    python -m bench.runs [--rounds 5] [--conversations 200]

A step is one question to the model, which answers at once in this process: four calls of a tool,
then an answer. Every message is committed before the next one, over 10 connections to the same
PostgreSQL; many conversations at a time, then one after the other. In turns:

- bare loop: an INSERT for each of the nine messages, and nothing else
- ChatMind: worker, turn loop and journal; the questions were accepted before
- LangGraph: its prebuilt agent with AsyncPostgresSaver and durability "sync"
- DBOS: a workflow in which every message is a step
"""

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

import asyncpg
import psutil
import uvloop

from bench.agent import AgentStores, agent_stores
from bench.contest import Contender, contest, table, versions
from bench.conversation import ANSWER, RESULT, STEPS, TOOL, arguments, call_id
from bench.postgres import postgres, settings
from bench.runs_peers import dbos_runs, langgraph_runs
from services.agent.domain.chat import (
    ModelInfo,
    ModelReply,
    ModelRequest,
    Provider,
    RunContext,
    ToolEffect,
)
from services.agent.domain.messages import Role, ToolCall
from services.agent.domain.models import AgentSettings, ToolCallId
from services.agent.domain.ports import Knowledge, RunJournal
from services.agent.domain.run_models import RunState, Usage
from services.agent.domain.tools.function import function_tool
from services.agent.domain.tools.registry import Tools
from services.agent.domain.tools.sources import KnowledgeTools, RegisteredTools
from services.agent.domain.turn.loop import Loop
from services.agent.domain.turn.plan import Planner
from services.agent.store.postgres.memories import PostgresMemoryStore
from services.common.clock import now
from services.common.ids import new_id

CONNECTIONS = 10
ALONE = 10
"""How many conversations are held one after the other in a round."""

CREATE = """
CREATE TABLE message (
    session_id uuid NOT NULL,
    sequence bigint NOT NULL,
    role text NOT NULL,
    text text NOT NULL,
    tool_calls jsonb,
    create_time timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (session_id, sequence)
)
"""
SAY = (
    "INSERT INTO message (session_id, sequence, role, text, tool_calls) VALUES ($1, $2, $3, $4, $5)"
)

Converse = Callable[[], Awaitable[object]]


class Conversations:
    """Conversations held by a function, so many in all and so many at a time."""

    def __init__(self, name: str, converse: Converse, *, count: int, at_once: int) -> None:
        self.name = name
        self._converse, self._count, self._at_once = converse, count, at_once

    async def prepare(self) -> None:
        """Nothing is needed."""

    async def work(self) -> int:
        """Hold them."""
        left = iter(range(self._count))

        async def hold() -> None:
            for _ in left:
                await self._converse()

        await asyncio.gather(*(hold() for _ in range(self._at_once)))
        return STEPS * self._count


class Bare:
    """A loop with nothing but the messages."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def run(self) -> None:
        """One conversation."""
        session_id, sequence = new_id(), 0
        for step in range(STEPS - 1):
            call = {"id": call_id(step), "name": TOOL, "arguments": json.dumps(arguments(step))}
            for role, text, calls in (("assistant", "", [call]), ("tool", RESULT, None)):
                sequence += 1
                told = None if calls is None else json.dumps(calls)
                await self._pool.execute(SAY, session_id, sequence, role, text, told)
        await self._pool.execute(SAY, session_id, sequence + 1, "assistant", ANSWER, None)


class ScriptedModel:
    """Answers at once; the only model there is."""

    info = ModelInfo("scripted", "scripted", Provider.OPENAI, default=True)

    def get(self, _: str) -> "ScriptedModel":
        """Itself."""
        return self

    def list(self) -> Sequence[ModelInfo]:
        """Itself alone."""
        return [self.info]

    async def complete(self, request: ModelRequest) -> ModelReply:
        """The next reply."""
        messages = request.messages
        question = max(at for at, each in enumerate(messages) if each.role is Role.USER)
        step = sum(each.role is Role.ASSISTANT for each in messages[question:])
        if step == STEPS - 1:
            return ModelReply(ANSWER, usage=Usage(100, 10))
        call = ToolCall(ToolCallId(call_id(step)), TOOL, json.dumps(arguments(step)))
        return ModelReply("", tool_calls=(call,), usage=Usage(100, 10))


class NoKnowledge(Knowledge):
    """The agent has no base."""

    async def search(self, *_: Any, **__: Any) -> Any:
        """Finds nothing."""
        return []

    async def bases(self, *_: Any, **__: Any) -> Any:
        """There are none."""
        return {}


async def look_up(what: str) -> str:  # noqa: ARG001
    """Look something up.

    Args:
        what: what to look for.
    """
    return RESULT


class OurRuns:
    """ChatMind's worker at work on runs that wait for it."""

    def __init__(self, stores: AgentStores, *, count: int, at_once: int) -> None:
        self.name = "ChatMind"
        self._stores, self._count, self._at_once = stores, count, at_once
        model = ScriptedModel()
        tools = Tools([function_tool(look_up, idempotent=True, effect=ToolEffect.READ_ONLY)])
        self._loop = Loop(
            planner=Planner(model, [RegisteredTools(tools), KnowledgeTools(NoKnowledge())]),
            clock=now,
            memories=PostgresMemoryStore(stores.pool),
        )

    async def prepare(self) -> None:
        """A run in each session."""
        await self._stores.ask(self._count)

    async def work(self) -> int:
        """Have them all answered."""
        left, done = self._count, asyncio.Event()

        async def turns(context: RunContext, journal: RunJournal) -> None:
            nonlocal left
            ending = await self._loop.run(context, journal)
            assert ending is not None
            assert ending.state is RunState.FINISHED
            left -= 1
            if not left:
                done.set()

        async with self._stores.working(turns, runs_at_once=self._at_once):
            await done.wait()
        return STEPS * self._count


async def measure(*, rounds: int, conversations: int) -> None:
    """Hold conversations in turns, many at a time and then one by one."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(postgres())
        pool = await stack.enter_async_context(
            asyncpg.create_pool(
                await server.create_database("bare"), min_size=CONNECTIONS, max_size=CONNECTIONS
            )
        )
        await pool.execute(CREATE)
        stores = await stack.enter_async_context(
            agent_stores(
                await server.create_database("chatmind"),
                connections=CONNECTIONS,
                sessions=conversations,
                settings=AgentSettings("bench", tools=("look_up",)),
            )
        )
        graph = await stack.enter_async_context(
            langgraph_runs(await server.create_database("langgraph"), connections=CONNECTIONS)
        )
        dbos = await stack.enter_async_context(
            dbos_runs(await server.create_database("dbos"), connections=CONNECTIONS)
        )
        print(await settings(server.dsn("postgres")))
        print(versions("asyncpg", "langgraph", "langgraph-checkpoint-postgres", "psycopg", "dbos"))
        for count, at_once in ((conversations, conversations), (ALONE, 1)):
            contenders: list[Contender] = [
                Conversations("bare loop", Bare(pool).run, count=count, at_once=at_once),
                OurRuns(stores, count=count, at_once=at_once),
                Conversations("LangGraph", graph.run, count=count, at_once=at_once),
                Conversations("DBOS", dbos.run, count=count, at_once=at_once),
            ]
            scores = await contest(contenders, rounds=rounds, server=psutil.Process(server.pid))
            print(f"\n{count} conversations of {STEPS} steps, {at_once} at a time")
            print(table(scores, unit="steps", reference="bare loop"))
            ours = scores["ChatMind"].rate
            print(f"ChatMind is {ours / scores['LangGraph'].rate:.1f} x LangGraph (goal 8)")
            print(f"and {ours / scores['bare loop'].rate:.2f} of the bare loop (goal .70)\n")


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--conversations", type=int, default=200)
    with suppress(KeyboardInterrupt):
        uvloop.run(measure(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
