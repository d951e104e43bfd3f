"""Hearing wake-ups, on a real server."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import asyncpg
import pytest

from services.common import listen, session
from services.common.listen import Listener, Pace, open_listener
from services.common.session import Connection

SLOW = 600.0
NO_POLL = Pace(poll=SLOW, poll_when_deaf=SLOW, check=0.2)


@asynccontextmanager
async def _listening(dsn: str, *, pace: Pace = NO_POLL) -> AsyncIterator[Listener]:
    async with open_listener(dsn, "news", application_name="listener", pace=pace) as listener:
        await asyncio.wait_for(listener.connected.wait(), 10)
        yield listener


@asynccontextmanager
async def _session(dsn: str) -> AsyncIterator[Connection]:
    session = await asyncpg.connect(dsn)
    try:
        yield session
    finally:
        await session.close()


async def _notify(dsn: str, payload: str) -> None:
    async with _session(dsn) as session:
        await session.execute("SELECT pg_notify('news', $1)", payload)


async def _terminate_listener(dsn: str) -> None:
    async with _session(dsn) as session:
        ended = await session.fetchval(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE application_name = 'listener'"
        )
    assert ended


async def _returns(waiting: Awaitable[None], *, within: float = 5.0) -> bool:
    try:
        await asyncio.wait_for(waiting, within)
    except TimeoutError:
        return False
    return True


class TestSubscription:
    async def test_a_hint_wakes_all_who_wait_for_its_key_and_no_others(
        self, empty_database: str
    ) -> None:
        async with _listening(empty_database) as listener:
            with (
                listener.subscribe("a") as one,
                listener.subscribe("a") as two,
                listener.subscribe("b") as other,
            ):
                await _notify(empty_database, "x,a,y")

                assert await _returns(one.wait())
                assert await _returns(two.wait())
                assert not await _returns(other.wait(), within=0.2)

    async def test_a_hint_between_two_waits_is_kept(self, empty_database: str) -> None:
        async with _listening(empty_database) as listener:
            with listener.subscribe("a") as early, listener.subscribe("a") as late:
                await _notify(empty_database, "a")
                assert await _returns(early.wait())

                assert await _returns(late.wait())
                assert not await _returns(late.wait(), within=0.2)

    async def test_a_burst_wakes_a_few_times_and_its_last_hint_always(
        self, empty_database: str
    ) -> None:
        pace = Pace(poll=SLOW, poll_when_deaf=SLOW, debounce=0.2)
        clock = asyncio.get_running_loop().time
        returns: list[float] = []
        async with _listening(empty_database, pace=pace) as listener:
            with listener.subscribe("a") as subscription:

                async def look() -> None:
                    while True:
                        await subscription.wait()
                        returns.append(clock())

                looking = asyncio.create_task(look())
                began = clock()
                async with _session(empty_database) as session:
                    while clock() < began + 1:
                        await session.execute("NOTIFY news, 'a'")
                last_hint = clock()
                assert not await _returns(looking, within=0.5)

        assert len(returns) <= 7
        assert returns[-1] >= last_hint - 0.2

    async def test_without_a_hint_it_returns_to_look(self, empty_database: str) -> None:
        async with _listening(empty_database, pace=Pace(poll=0.1)) as listener:
            with listener.subscribe("a") as subscription:
                assert await _returns(subscription.wait())
                assert await _returns(subscription.wait())

    async def test_one_that_does_not_poll_returns_for_hints_alone(
        self, empty_database: str
    ) -> None:
        pace = Pace(poll=0.05, poll_when_deaf=0.05, check=0.2)
        async with _listening(empty_database, pace=pace) as listener:
            with listener.subscribe("a", poll=False) as quiet, listener.subscribe("b") as poller:
                await _terminate_listener(empty_database)
                assert await _returns(poller.wait())
                await asyncio.wait_for(listener.connected.wait(), 10)
                assert not await _returns(quiet.wait(), within=0.3)

                await _notify(empty_database, "a")

                assert await _returns(quiet.wait())

    async def test_after_its_block_nobody_is_kept(self, empty_database: str) -> None:
        async with _listening(empty_database) as listener:
            for number in range(100):
                with listener.subscribe(str(number)), listener.subscribe(str(number)):
                    pass

            assert not listener._subscriptions

    async def test_cancellation_passes_through(self, empty_database: str) -> None:
        async with _listening(empty_database) as listener:
            with listener.subscribe("a") as subscription:
                waiting = asyncio.create_task(subscription.wait())
                await asyncio.sleep(0)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting


class TestListener:
    async def test_reconnects_and_hears_again(self, empty_database: str) -> None:
        async with _listening(empty_database) as listener:
            with listener.subscribe("a") as subscription:
                await _terminate_listener(empty_database)
                assert await _returns(subscription.wait())
                await asyncio.wait_for(listener.connected.wait(), 10)
                while await _returns(subscription.wait(), within=0.2):
                    pass

                await _notify(empty_database, "a")

                assert await _returns(subscription.wait())

    async def test_what_was_missed_while_away_is_looked_for_on_return(
        self, empty_database: str
    ) -> None:
        async with _listening(empty_database) as listener:
            with listener.subscribe("a") as subscription:
                await _terminate_listener(empty_database)
                assert await _returns(subscription.wait())
                if not listener.connected.is_set():
                    assert await _returns(subscription.wait(), within=10)

                assert listener.connected.is_set()

    async def test_without_a_database_the_poll_goes_on(self) -> None:
        dsn = "postgresql://u:p@127.0.0.1:1/none"
        pace = Pace(poll=SLOW, poll_when_deaf=0.1)
        async with open_listener(dsn, "news", application_name="t", pace=pace) as listener:
            with listener.subscribe("a") as subscription:
                assert await _returns(subscription.wait())
                assert await _returns(subscription.wait())

            assert not listener.connected.is_set()

    async def test_a_connection_that_fell_silent_is_given_up(
        self, empty_database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(listen, "_ANSWER_TIMEOUT", 0.2)
        monkeypatch.setattr(session, "_CLOSE_GRACE", 0.2)
        async with _Proxy.to(empty_database) as proxy, _listening(proxy.dsn) as listener:
            with listener.subscribe("a") as subscription:
                assert not await _returns(subscription.wait(), within=0.5)
                proxy.silent = True

                assert await _returns(subscription.wait())
                assert not listener.connected.is_set()

                proxy.silent = False
                await asyncio.wait_for(listener.connected.wait(), 15)


class _Proxy:
    """Stands between a client and PostgreSQL, and can fall silent without closing anything."""

    def __init__(self, dsn: str) -> None:
        parts = urlsplit(dsn)
        self._server_port = parts.port
        self._port_in_dsn = f":{parts.port}/"
        self.dsn = ""
        self.silent = False

    @classmethod
    @asynccontextmanager
    async def to(cls, dsn: str) -> AsyncIterator["_Proxy"]:
        proxy = cls(dsn)
        server = await asyncio.start_server(proxy._serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        proxy.dsn = dsn.replace(proxy._port_in_dsn, f":{port}/")
        try:
            yield proxy
        finally:
            server.close()

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_connection("127.0.0.1", self._server_port)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass_on(client, to_server))
                group.create_task(self._pass_on(server, to_client))
        finally:
            to_client.close()
            to_server.close()

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            if not self.silent:
                target.write(data)
        target.close()
