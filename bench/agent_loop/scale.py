"""Whether twice the processes do twice the work: durable conversations over one PostgreSQL.

Each process holds so many conversations at once and has so many in all, whose model takes a second.
ChatMind's take them from their one queue, LangGraph's each have their own.
"""

import asyncio
import os
import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Final, TypeAlias

from bench.agent import AgentStores, agent_stores
from bench.agent_loop.goals import tell_goals
from bench.agent_loop.processes import Process, model_server, process
from bench.contest import versions
from bench.conversation import STEPS, TOOL
from bench.postgres import postgres, settings
from cli.local.postgres import EmbeddedPostgres
from services.agent.domain.models import AgentSettings
from services.common.db import connection

AT_ONCE: Final = 50
EACH: Final = 100
"""How many conversations a process has in all."""

CROWDS: Final = (1, 2, 4)
_CONNECTIONS = 10
_MODEL_SECONDS = 1
_LEFT = "SELECT count(*) FROM run WHERE end_time IS NULL"

Work: TypeAlias = Callable[[int], AbstractAsyncContextManager[Callable[[], Any]]]
"""Opens so many processes and gives what holds all their conversations."""


async def measure_scale(*, rounds: int) -> None:
    """Steps a second of 1, 2 and 4 processes."""
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(model_server())
        server = await stack.enter_async_context(postgres())
        print(await settings(server.dsn("postgres")))
        print(versions("langgraph", "langgraph-checkpoint-postgres", "langchain-openai"))
        contenders = {
            "ChatMind": await stack.enter_async_context(_chatmind(server, model)),
            "LangGraph": await _langgraph(server, model),
        }
        rates: dict[tuple[str, int], list[float]] = {}
        for at in range(rounds):
            for name, work in contenders.items():
                for crowd in CROWDS:
                    rates.setdefault((name, crowd), []).append(await _rate(work, crowd))
            print(f"round {at + 1} of {rounds}, load {os.getloadavg()[0]:.2f}", flush=True)
        medians = {key: statistics.median(each) for key, each in rates.items()}
        for name in contenders:
            _tell(name, [medians[name, crowd] for crowd in CROWDS])
        most = CROWDS[-1]
        share = medians["ChatMind", most] / most / medians["ChatMind", 1]
        tell_goals("G20", [(f"each of {most} processes, of one alone", f"{share:.2f}", ">= .85")])


async def _rate(work: Work, crowd: int) -> float:
    async with work(crowd) as hold:
        begun = time.perf_counter()
        await hold()
        return crowd * EACH * STEPS / (time.perf_counter() - begun)


def _tell(name: str, rates: Sequence[float]) -> None:
    ideal = AT_ONCE / _MODEL_SECONDS
    told = [
        f"{crowd}: {rate:.0f} steps/s, {rate / crowd / rates[0]:.2f} of one's each, "
        f"{rate / crowd / ideal:.2f} of what the model allows"
        for crowd, rate in zip(CROWDS, rates, strict=True)
    ]
    print(f"{name}\n  " + "\n  ".join(told))


@asynccontextmanager
async def _chatmind(server: EmbeddedPostgres, model: str) -> AsyncIterator[Work]:
    dsn = await server.create_database("chatmind")
    agent = AgentSettings("bench", tools=(TOOL,))
    async with agent_stores(
        dsn, connections=_CONNECTIONS, sessions=max(CROWDS) * EACH, settings=agent
    ) as stores:

        @asynccontextmanager
        async def work(crowd: int) -> AsyncIterator[Callable[[], Any]]:
            await stores.ask(crowd * EACH)
            async with _processes("chatmind", dsn, model, crowd) as processes:

                async def hold() -> None:
                    for each in processes:
                        each.tell()
                    await _answered(stores)

                yield hold

        yield work


async def _answered(stores: AgentStores) -> None:
    """Wait until no run is left."""
    async with connection(stores.pool) as lent:
        while await lent.fetchval(_LEFT):  # noqa: ASYNC110 -- other processes do the work
            await asyncio.sleep(0.02)


async def _langgraph(server: EmbeddedPostgres, model: str) -> Work:
    dsn = await server.create_database("langgraph")

    @asynccontextmanager
    async def work(crowd: int) -> AsyncIterator[Callable[[], Any]]:
        async with _processes("langgraph", dsn, model, crowd) as processes:
            yield lambda: asyncio.gather(*(each.do() for each in processes))

    return work


@asynccontextmanager
async def _processes(
    name: str, dsn: str, model: str, crowd: int
) -> AsyncIterator[Sequence[Process]]:
    """Processes of `bench.agent_loop.durable`."""
    given = (name, dsn, f"{model}/{1000 * _MODEL_SECONDS}/v1", str(AT_ONCE), str(EACH))
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(process("durable", *given)) for _ in range(crowd)]
