"""What the contract suite cannot see of the bus over NATS: subjects, and a server that dies."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from cli.local.ports import free_ports
from services.common.bus import nats, nats_session
from services.common.bus.nats import BUCKETS, subject
from services.common.bus.outbox import Outbox
from services.common.bus.waiters import Waiters
from services.common.hints import Subscription
from services.common.ids import new_id
from tests.contracts.hints import hinted
from tests.nats_server import NatsServer, running_nats

NEVER = 600.0
ENOUGH = 20.0


@asynccontextmanager
async def carried(server: NatsServer) -> AsyncIterator[tuple[Waiters, Outbox]]:
    """Both ends of a bus on the channel "news"."""
    waiters, outbox = Waiters(poll=NEVER), Outbox()
    carrying = asyncio.create_task(
        nats.carry(server.url, "news", waiters, outbox, application_name="bus")
    )
    try:
        yield waiters, outbox
    finally:
        carrying.cancel()
        await asyncio.gather(carrying, return_exceptions=True)


async def hears(waiter: Subscription, outbox: Outbox, *, key: str) -> None:
    """Wait until a hint at the waiter's key comes through."""
    async with asyncio.timeout(ENOUGH):
        heard = asyncio.create_task(waiter.wait())
        while not heard.done():
            outbox.notify(key)
            await asyncio.wait({heard}, timeout=0.1)


class TestSubject:
    def test_is_the_same_in_every_process_and_version(self) -> None:
        assert subject("agent", "runs") == "chatmind.agent.799"
        assert subject("knowledge", "知识") == "chatmind.knowledge.68"

    def test_ids_spread_over_all_buckets(self) -> None:
        used = {subject("agent", new_id()) for _ in range(20 * BUCKETS)}

        assert len(used) == BUCKETS


class TestCarry:
    async def test_only_what_somebody_waits_for_is_subscribed_to(self) -> None:
        monitor = next(free_ports())
        async with running_nats("--http_port", str(monitor)) as server, httpx.AsyncClient() as http:

            async def held(*keys: str) -> bool:
                """Whether the server knows of just these keys' subjects, before long."""
                wanted = sorted(subject("news", key) for key in keys)
                for _ in range(100):
                    url = f"http://127.0.0.1:{monitor}/connz?subs=1"
                    (connection,) = (await http.get(url)).json()["connections"] or [{}]
                    if sorted(connection.get("subscriptions_list", [])) == wanted:
                        return True
                    await asyncio.sleep(0.05)
                return False

            async with carried(server) as (waiters, outbox):
                with waiters.subscribe("a") as waiter:
                    await hears(waiter, outbox, key="a")
                    assert await held("a")
                    with waiters.subscribe("b"), waiters.subscribe("a"):
                        assert await held("a", "b")
                    assert await held("a")
                assert await held()

    async def test_outlives_a_server_that_is_killed_and_comes_back(self) -> None:
        async with running_nats() as server, carried(server) as (waiters, outbox):
            with hinted(waiters, "a") as waiter, waiters.subscribe("b") as polling:
                await hears(waiter, outbox, key="a")
                for _ in range(3):
                    await hears(polling, outbox, key="b")
                    server.kill()

                    await asyncio.wait_for(polling.wait(), ENOUGH)
                    await server.start()

                    await hears(waiter, outbox, key="a")

    async def test_a_server_that_is_frozen_is_given_up(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(nats_session, "_CHECK", 0.2)
        monkeypatch.setattr(nats_session, "ANSWER_TIMEOUT", 0.5)
        async with running_nats() as server, carried(server) as (waiters, outbox):
            with hinted(waiters, "a") as waiter, waiters.subscribe("b") as polling:
                await hears(waiter, outbox, key="a")
                await hears(polling, outbox, key="b")
                server.send(signal.SIGSTOP)
                for number in range(50_000):
                    outbox.notify(f"{number:040d}")

                await asyncio.wait_for(polling.wait(), ENOUGH)
                server.send(signal.SIGCONT)

                await hears(waiter, outbox, key="a")
