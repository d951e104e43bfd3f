"""The buses under test, PostgreSQL's and NATS', each behind a proxy that can cut it off."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
from nats.aio.client import Client

from services.common.bus.nats import subject
from services.common.bus.open import Bus, open_bus
from services.common.bus.settings import BusSettings
from services.common.hints import Listener, Subscription
from tests.faults.proxy import Proxy, open_proxy
from tests.nats_server import running_nats

NEVER = 10.0
"""Seconds between polls that no test here waits for."""

SOON = 5.0
"""Seconds in which a hint arrives, however busy the machine is."""

ENOUGH = 20.0
"""Seconds in which a connection is made again."""


@dataclass(frozen=True, slots=True)
class Station:
    """One kind of bus with a server of its own.

    Attributes:
        channel: nobody else's.
        proxy: on the way that `through_proxy` leads.
        direct: the variables of settings that lead to the server itself.
        through_proxy: the same, by way of the proxy.
        say: sends any bytes where hints at the key "a" are sent, as a stranger might.
    """

    channel: str
    proxy: Proxy
    direct: dict[str, str]
    through_proxy: dict[str, str]
    say: Callable[[bytes], Awaitable[None]]

    def open(
        self, *, poll: float = NEVER, cuttable: bool = False
    ) -> AbstractAsyncContextManager[Bus]:
        """A bus as a process opens it."""
        variables = self.through_proxy if cuttable else self.direct
        settings = BusSettings.model_validate(
            {"listen": "127.0.0.1:0", "identity_dir": Path(), "poll_seconds": poll, **variables}
        )
        return open_bus(settings, self.channel, application_name="contract")

    async def cut(self) -> None:
        """Cut off whoever goes by way of the proxy, until `proxy.listen()`."""
        await self.proxy.refuse()
        self.proxy.reset()


@asynccontextmanager
async def postgres_station(dsn: str) -> AsyncIterator[Station]:
    """LISTEN and NOTIFY in a database."""
    channel, address = _new_channel(), urlsplit(dsn).netloc.rpartition("@")[2]

    async def say(payload: bytes) -> None:
        session = await asyncpg.connect(dsn)
        try:
            text = payload.decode("utf-8", errors="ignore").replace("\0", "")[:7999]
            await session.execute("SELECT pg_notify($1, $2)", channel, text)
        finally:
            await session.close()

    async with open_proxy(address) as proxy:
        yield Station(
            channel,
            proxy,
            {"CHATMIND_DATABASE_URL": dsn},
            {"CHATMIND_DATABASE_URL": dsn.replace(address, proxy.address)},
            say,
        )


@asynccontextmanager
async def nats_station() -> AsyncIterator[Station]:
    """A NATS server; there is no database."""
    channel = _new_channel()
    async with running_nats() as server, open_proxy(server.address) as proxy:

        async def say(payload: bytes) -> None:
            client = Client()
            await client.connect(server.url)
            await client.publish(subject(channel, "a"), payload)
            await client.flush()
            await client.close()

        nats = {"CHATMIND_BUS": "nats", "CHATMIND_DATABASE_URL": "postgresql://none"}
        yield Station(
            channel,
            proxy,
            {**nats, "CHATMIND_NATS_URL": server.url},
            {**nats, "CHATMIND_NATS_URL": f"nats://{proxy.address}"},
            say,
        )


def _new_channel() -> str:
    return f"news_{secrets.token_hex(4)}"


class Hinted:
    """One who waits for hints alone, without any poll; made by `hinted`."""

    def __init__(self) -> None:
        self._hint = asyncio.Event()

    def wake(self) -> None:
        """Let the present `wait` return, or else the next one."""
        self._hint.set()

    async def wait(self) -> None:
        """Return once there was a hint since the last return."""
        await self._hint.wait()
        self._hint.clear()


@contextmanager
def hinted(listener: Listener, key: str) -> Iterator[Hinted]:
    """One who waits for hints at a key until the end of the block."""
    waiter = Hinted()
    with listener.on_hint(key, waiter.wake):
        yield waiter


async def returns(subscription: Subscription, *, within: float = SOON) -> bool:
    """Whether a wait returns in time."""
    try:
        await asyncio.wait_for(subscription.wait(), within)
    except TimeoutError:
        return False
    return True


async def quiet(subscription: Subscription) -> None:
    """Wait until nothing is left of earlier hints."""
    while await returns(subscription, within=0.1):
        pass


async def connected(*buses: Bus) -> None:
    """Wait until each of the buses hears itself and all the others."""
    async with asyncio.timeout(ENOUGH):
        for listening in buses:
            for notifying in buses:
                with hinted(listening.listener, "connected?") as news:
                    await quiet(news)
                    notifying.notifier.notify("connected?")
                    while not await returns(news, within=0.2):
                        notifying.notifier.notify("connected?")


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something is so; fail if that takes too long."""
    async with asyncio.timeout(SOON):
        while not condition():  # noqa: ASYNC110 - conditions of any kind
            await asyncio.sleep(0.01)
