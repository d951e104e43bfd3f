"""Processor time of each delivered message, and memory of each silent stream."""

import asyncio
import os
import statistics
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from operator import truediv
from pathlib import Path

from bench.knowledge import told
from bench.stream.agent import StandIn, stand_in
from bench.stream.heard import Heard, Timed
from bench.stream.processes import OnMessage, Server, bare, gateway, keep_apart, key_of
from bench.stream.streams import grpc_streams, sse_streams
from cli.local.identity_keys import ensure_identity_keys
from cli.local.postgres import EmbeddedPostgres
from services.common.ids import new_id

STREAMS, CONNECTIONS = 200, 4
PER_SECOND, TICK_SECONDS = 1000, 0.005
WARM_UP = 100
SHARED_BY = 100
"""Streams to a connection, as where a service holds them on behalf of its users."""

SETTLE = 1.0
_NO_HEARTBEAT = {"CHATMIND_GATEWAY_HEARTBEAT_SECONDS": "60"}

Open = Callable[[int, int, OnMessage], AbstractAsyncContextManager[None]]
"""Opens so many streams over so many connections."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A server that streams, and how to make it.

    Attributes:
        server: the process.
        open: opens streams to it.
        send: has it send so many messages in each of so many ticks, which are so long.
    """

    server: Server
    open: Open
    send: Callable[[int, int, float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class GatewaySource:
    """Has a gateway send messages by telling it of them, as an agent service would."""

    agent: StandIn
    session_ids: list[str]

    async def send(self, count: int, ticks: int, seconds: float) -> None:
        """See `Contender`."""
        await self.agent.watched(len(self.session_ids))
        now = asyncio.get_running_loop().time
        began, turns = now(), cycle(self.session_ids)
        for tick in range(ticks):
            await self.agent.publish(list(islice(turns, count)))
            await asyncio.sleep(began + (tick + 1) * seconds - now())


@asynccontextmanager
async def contenders(*, streams: int) -> AsyncIterator[list[Contender]]:
    """All of them, for the block's time; ours is the first."""
    keep_apart()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ensure_identity_keys(folder / "keys")
        postgres = await stack.enter_async_context(EmbeddedPostgres(folder / "data"))
        agent = await stack.enter_async_context(stand_in())
        ours = await stack.enter_async_context(
            gateway(folder, postgres.dsn("postgres"), agent.address, **_NO_HEARTBEAT)
        )
        metadata = await key_of(folder, ours, tenant="bench", user_id="bench")
        source = GatewaySource(agent, [new_id() for _ in range(streams)])
        grpc = await stack.enter_async_context(bare("grpc"))
        sse = await stack.enter_async_context(bare("sse"))

        def to_grpc(server: Server) -> Open:
            return lambda count, connections, on_message: grpc_streams(
                server.address,
                source.session_ids[:count],
                on_message,
                metadata=metadata,
                connections=connections,
            )

        def to_sse(count: int, _: int, on_message: OnMessage) -> AbstractAsyncContextManager[None]:
            return sse_streams(sse.address, count, on_message)

        yield [
            Contender(ours, to_grpc(ours), source.send),
            Contender(grpc, to_grpc(grpc), grpc.send),
            Contender(sse, to_sse, sse.send),
        ]


async def measure_cpu(*, rounds: int, seconds: float) -> None:
    """Microseconds of each server's time for a message, paced and flat out."""
    costs: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    async with contenders(streams=STREAMS) as all_of_them, AsyncExitStack() as stack:
        heard = {}
        for each in all_of_them:
            heard[each.server.name] = Heard()
            await stack.enter_async_context(
                each.open(STREAMS, CONNECTIONS, heard[each.server.name].on_message)
            )
        for at in range(rounds + 1):
            for each in all_of_them:
                for label, run in (("paced", _paced), ("flat out", _flat_out)):
                    cost = await run(each, heard[each.server.name], seconds)
                    if at:  # the first round warms up
                        costs[label][each.server.name].append(cost)
            print(f"round {at} of {rounds}, load {os.getloadavg()[0]:.2f}", flush=True)
    print(f"\n{STREAMS} streams; gRPC over {CONNECTIONS} connections, SSE over one each")
    for label, by_name in costs.items():
        print(f"\n{label}: µs of the server's processor time for each message")
        print(ratios(by_name, "µs"))


async def _paced(each: Contender, heard: Heard, seconds: float) -> float:
    ticks = int(seconds / TICK_SECONDS)
    return await _cost(each, heard, int(PER_SECOND * TICK_SECONDS), ticks, TICK_SECONDS)


async def _flat_out(each: Contender, heard: Heard, seconds: float) -> float:
    """One message on every stream as soon as all have had the one before."""
    turns = int(5 * seconds)
    before = each.server.spent()
    for _ in range(turns):
        goal = heard.count + STREAMS
        await each.send(STREAMS, 1, 0)
        await heard.until(goal)
    return 1e6 * (each.server.spent() - before) / (turns * STREAMS)


async def _cost(each: Contender, heard: Heard, count: int, ticks: int, seconds: float) -> float:
    before, goal = each.server.spent(), heard.count + count * ticks
    await each.send(count, ticks, seconds)
    await heard.until(goal)
    return 1e6 * (each.server.spent() - before) / (count * ticks)


async def measure_memory(*, streams: int) -> None:
    """Bytes of each server for a stream that is open and silent."""
    for connections in (streams, streams // SHARED_BY):
        async with contenders(streams=streams) as all_of_them:
            by_name = {
                each.server.name: [await _held(each, streams, connections) / 1024]
                for each in all_of_them
            }
        print(f"\n{streams} streams over {connections} connections (SSE: over one each), KiB each")
        print(ratios(by_name, "KiB"), flush=True)


async def _held(each: Contender, streams: int, connections: int) -> float:
    """Bytes of memory for each of so many streams, beside those of a server that had a few."""
    async with each.open(WARM_UP, WARM_UP, _ignore):
        await asyncio.sleep(SETTLE)
    before = each.server.resident()
    async with each.open(streams, connections, _ignore):
        await asyncio.sleep(SETTLE)
        return (each.server.resident() - before) / streams


def _ignore(_: int, __: bytes) -> None:
    """Streams are silent here."""


async def measure_fan(*, streams: int, rounds: int) -> None:
    """How long a message to each of very many streams takes, all at once."""
    async with contenders(streams=streams) as (ours, bare_grpc, _):
        for each in (ours, bare_grpc):
            timed = Timed()
            async with each.open(streams, streams // SHARED_BY, timed.on_message):
                for at in range(rounds):
                    await each.send(streams, 1, 0)
                    await timed.until((at + 1) * streams)
            print(told(f"{each.server.name}, {streams} at once", timed.seconds))


def ratios(by_name: dict[str, list[float]], unit: str) -> str:
    """The medians, and how many times each of the others the first one is."""
    (ours, values), *others = by_name.items()
    lines = [
        f"{name:<16} {statistics.median(each):>7.1f} {unit}, {min(each):.1f} to {max(each):.1f}"
        for name, each in by_name.items()
    ]
    times = [
        f"{statistics.median(map(truediv, values, each)):.2f} x {name}" for name, each in others
    ]
    return "\n".join([*lines, f"{ours} is {', '.join(times)}, median of the rounds"])
