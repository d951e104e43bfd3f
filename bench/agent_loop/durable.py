"""One process of those that share a database:

    python -m bench.agent_loop.durable NAME DSN URL AT_ONCE EACH

At a line it begins. LangGraph then says when it is done; ChatMind takes runs for as long as it is
let.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import uvloop

_CONNECTIONS = 10


@asynccontextmanager
async def _chatmind(dsn: str, url: str, at_once: int, _: int) -> AsyncIterator[Callable[[], Any]]:
    from bench.agent import Hints
    from bench.agent_loop.by_chatmind import open_loop
    from services.agent.domain.places import Places
    from services.agent.store.postgres.queue import PostgresRunQueue
    from services.agent.store.postgres.schema import SCHEMA
    from services.agent.worker import Worker
    from services.common.db import open_pool
    from services.common.ids import new_id

    async with (
        open_loop(url) as loop,
        open_pool(dsn, schema=SCHEMA, application_name="bench", max_size=_CONNECTIONS) as pool,
    ):
        queue, hints, places = PostgresRunQueue(pool, new_id=new_id), Hints(), Places(at_once)

        async def turns(context: Any, journal: Any) -> None:
            await loop.run(context, journal)

        async def work() -> None:
            worker = Worker(queue, turns, places=places, listener=hints, notifier=hints)
            async with queue.together(), worker.working():
                await asyncio.Event().wait()

        yield work


@asynccontextmanager
async def _langgraph(
    dsn: str, url: str, at_once: int, each: int
) -> AsyncIterator[Callable[[], Any]]:
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from psycopg import AsyncConnection
    from psycopg.rows import DictRow, dict_row
    from psycopg_pool import AsyncConnectionPool

    from bench.agent_loop.by_hand import QUESTION
    from bench.agent_loop.by_langgraph import agent
    from bench.agent_loop.contender import hold
    from services.common.ids import new_id

    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(
        dsn,
        connection_class=AsyncConnection[DictRow],
        min_size=_CONNECTIONS,
        max_size=_CONNECTIONS,
        kwargs=options,
        open=False,
    ) as pool:
        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        graph = agent(url, checkpointer=saver)

        async def converse() -> str:
            state = await graph.ainvoke(
                {"messages": [("user", QUESTION)]},
                {"configurable": {"thread_id": new_id()}},
                durability="sync",
            )
            return str(state["messages"][-1].content)

        yield lambda: hold(converse, conversations=each, at_once=at_once)


async def main(name: str, dsn: str, url: str, at_once: str, each: str) -> None:
    """Say hello, and work at a line."""
    opened: AbstractAsyncContextManager[Any] = {"chatmind": _chatmind, "langgraph": _langgraph}[
        name
    ](dsn, url, int(at_once), int(each))
    async with opened as work:
        _tell({})
        await asyncio.to_thread(sys.stdin.readline)
        await work()
        _tell({})


def _tell(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
