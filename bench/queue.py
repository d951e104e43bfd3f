"""How fast runs are taken and ended, beside job queues over the same PostgreSQL.

    python -m bench.queue [--rounds 5] [--scale 1.0]

Work that does nothing is taken from a queue and ended, by 5 connections each, in turns:

- raw SKIP LOCKED: an UPDATE that takes jobs, a DELETE that ends them, ten or one at a time, by five
  consumers
- raw, with records: the same, ten at a time, with what makes a job a run: it has a lease, and its
  end keeps it and says a message, numbered in a session
- ChatMind, its queue: five consumers who take up to ten runs and end each with an answer; as with
  the worker, what ends at once is committed together
- ChatMind, its worker: the whole worker, 32 runs at once, which reads what each run begins with too
- pgqueuer: five managers with a connection and a batch of ten each, its defaults otherwise
- procrastinate: a worker with a pool of five and as many jobs at once, which deletes what is done
"""

import argparse
import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

import asyncpg
import procrastinate
import psutil
import uvloop
from pgqueuer.adapters.drivers.asyncpg import AsyncpgDriver
from pgqueuer.adapters.persistence.queries import Queries
from pgqueuer.core.qm import QueueManager
from pgqueuer.domain.types import QueueExecutionMode

from bench.agent import AgentStores, agent_stores
from bench.contest import Contender, contest, table, versions
from bench.postgres import postgres, settings
from bench.queue_raw import Raw, RawRuns, raw_pool
from services.agent.domain.chat import Ending, RunContext
from services.agent.domain.messages import Draft, Role
from services.agent.domain.models import AgentSettings
from services.agent.domain.ports import RunJournal
from services.agent.domain.queue import Claim
from services.agent.domain.run_models import RunState, StopReason

CONNECTIONS = 5
BATCH = 10
RUNS_AT_ONCE = 32
RAW = "raw SKIP LOCKED, batch 10"
RECORDED = "raw, with records"
LEASE = timedelta(seconds=30)
ENDED = Ending(RunState.FINISHED, StopReason.END_TURN)
ANSWER = Draft(Role.ASSISTANT, "Nothing was to be done.")


class BareQueue:
    """ChatMind's queue of runs."""

    name = "ChatMind, its queue"

    def __init__(self, stores: AgentStores, *, runs: int) -> None:
        self._stores, self._runs = stores, runs

    async def prepare(self) -> None:
        """A run in each session."""
        await self._stores.ask(self._runs)

    async def work(self) -> int:
        """Take and end them."""
        async with self._stores.queue.together():
            await asyncio.gather(*(self._consume() for _ in range(CONNECTIONS)))
        return self._runs

    async def _consume(self) -> None:
        queue = self._stores.queue
        while claims := await queue.claim(lease=LEASE, most=BATCH):
            await asyncio.gather(*(self._end(claim) for claim in claims))

    async def _end(self, claim: Claim) -> None:
        await self._stores.queue.journal(claim).finish(ENDED, [ANSWER])


class WholeWorker(BareQueue):
    """ChatMind's worker, with turns that end at once."""

    name = "ChatMind, its worker"

    async def work(self) -> int:
        """Take and end them."""
        left, done = self._runs, asyncio.Event()

        async def turns(_: RunContext, journal: RunJournal) -> None:
            nonlocal left
            await journal.finish(ENDED, [ANSWER])
            left -= 1
            if not left:
                done.set()

        async with self._stores.working(turns, runs_at_once=RUNS_AT_ONCE):
            await done.wait()
        return self._runs


class Pgqueuer:
    """pgqueuer's managers, until the queue is empty."""

    name = "pgqueuer"

    def __init__(self, sessions: list[asyncpg.Connection], *, jobs: int) -> None:
        self._sessions, self._jobs = sessions, jobs
        self._queries = [Queries(AsyncpgDriver(session)) for session in sessions]

    async def prepare(self) -> None:
        """Jobs in the queue."""
        jobs = self._jobs
        await self._queries[0].enqueue(["nothing"] * jobs, [None] * jobs, [0] * jobs)
        await self._sessions[0].execute("VACUUM ANALYZE pgqueuer")

    async def work(self) -> int:
        """Take and end them."""
        await asyncio.gather(*(self._drain(queries) for queries in self._queries))
        return self._jobs

    async def _drain(self, queries: Queries) -> None:
        manager = QueueManager(queries)

        @manager.entrypoint("nothing")
        async def nothing(_: object) -> None:
            """Do nothing."""

        await manager.run(
            dequeue_timeout=timedelta(milliseconds=10),
            batch_size=BATCH,
            mode=QueueExecutionMode.drain,
        )


class Procrastinate:
    """procrastinate's worker, until the queue is empty."""

    name = "procrastinate"

    def __init__(self, app: procrastinate.App, *, jobs: int) -> None:
        self._app, self._jobs = app, jobs
        self._task = app.task(name="nothing")(_nothing)

    async def prepare(self) -> None:
        """Jobs in the queue."""
        await self._task.batch_defer_async(*({} for _ in range(self._jobs)))
        await self._app.connector.execute_query_async("ANALYZE procrastinate_jobs")

    async def work(self) -> int:
        """Take and end them."""
        await self._app.run_worker_async(
            wait=False,
            concurrency=CONNECTIONS,
            delete_jobs="always",
            install_signal_handlers=False,
            listen_notify=False,
        )
        return self._jobs


async def _nothing() -> None:
    """Do nothing."""


@asynccontextmanager
async def pgqueuer(dsn: str, *, jobs: int) -> AsyncIterator[Pgqueuer]:
    """pgqueuer with a connection for each manager."""
    sessions = [await asyncpg.connect(dsn) for _ in range(CONNECTIONS)]
    await Queries(AsyncpgDriver(sessions[0])).install()
    try:
        yield Pgqueuer(sessions, jobs=jobs)
    finally:
        for session in sessions:
            await session.close()


@asynccontextmanager
async def procrastinating(dsn: str, *, jobs: int) -> AsyncIterator[Procrastinate]:
    """procrastinate with a pool."""
    connector = procrastinate.PsycopgConnector(
        conninfo=dsn, min_size=CONNECTIONS, max_size=CONNECTIONS
    )
    app = procrastinate.App(connector=connector)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        yield Procrastinate(app, jobs=jobs)


async def measure(*, rounds: int, scale: float) -> None:
    """Let all drain their queues in turns."""
    runs = round(2000 * scale)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(postgres())
        raw = await stack.enter_async_context(
            raw_pool(await server.create_database("raw"), connections=CONNECTIONS)
        )
        stores = await stack.enter_async_context(
            agent_stores(
                await server.create_database("chatmind"),
                connections=CONNECTIONS,
                sessions=runs,
                settings=AgentSettings("bench"),
            )
        )
        contenders: list[Contender] = [
            Raw(raw, name=RAW, batch=BATCH, jobs=round(20_000 * scale)),
            Raw(raw, name="raw SKIP LOCKED, batch 1", batch=1, jobs=round(3000 * scale)),
            RawRuns(raw, name=RECORDED, batch=BATCH, jobs=round(10_000 * scale)),
            BareQueue(stores, runs=runs),
            WholeWorker(stores, runs=runs),
            await stack.enter_async_context(
                pgqueuer(await server.create_database("pgqueuer"), jobs=round(5000 * scale))
            ),
            await stack.enter_async_context(
                procrastinating(
                    await server.create_database("procrastinate"), jobs=round(600 * scale)
                )
            ),
        ]
        print(await settings(server.dsn("postgres")))
        print(versions("asyncpg", "pgqueuer", "procrastinate", "psycopg"))
        scores = await contest(contenders, rounds=rounds, server=psutil.Process(server.pid))
    print()
    print(table(scores, unit="jobs", reference=RAW))
    plain, records, peer = (scores[name].rate for name in (RAW, RECORDED, Pgqueuer.name))
    for ours in (BareQueue.name, WholeWorker.name):
        rate = scores[ours].rate
        print(f"{ours}: {rate / peer:.2f} of pgqueuer (goal 1.50)")
        print(f"{ours}: {rate / plain:.2f} of the raw queue (goal .50)")
        print(f"{ours}: {rate / records:.2f} of the raw queue with records")


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="how much work there is")
    logging.getLogger("procrastinate").setLevel(logging.WARNING)
    uvloop.run(measure(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
