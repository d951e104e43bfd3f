"""Keeping a session, whatever it leads to."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NoReturn

import pytest
from structlog.testing import capture_logs

from services.common.bus import keeping
from services.common.bus.keeping import keep_session, watched_by
from services.common.errors import UnavailableError


class Server:
    """Gives sessions by number, or none.

    Attributes:
        opened: how many were asked for.
        open: how many there are now.
        away: whether there are none.
    """

    def __init__(self) -> None:
        self.opened = 0
        self.open = 0
        self.away = False

    @asynccontextmanager
    async def session(self) -> AsyncIterator[int]:
        """A session."""
        self.opened += 1
        if self.away:
            raise UnavailableError("Away.") from ConnectionRefusedError("nobody listens")
        self.open += 1
        try:
            yield self.opened
        finally:
            self.open -= 1


class TestKeepSession:
    async def test_a_lost_session_is_made_again(self) -> None:
        server, seen, enough = Server(), [], asyncio.Event()

        async def use(session: int) -> None:
            seen.append((session, server.open))
            if session < 3:
                raise UnavailableError("Lost.") from ConnectionResetError("by peer")
            enough.set()
            await asyncio.Event().wait()

        with capture_logs() as logged:
            kept = asyncio.create_task(keep_session("line", server.session, use))
            await asyncio.wait_for(enough.wait(), 10)
            kept.cancel()
            with pytest.raises(asyncio.CancelledError):
                await kept

        assert seen == [(1, 1), (2, 1), (3, 1)]
        assert server.open == 0
        assert logged == [
            {
                "event": "session lost",
                "session": "line",
                "cause": "ConnectionResetError('by peer')",
                "log_level": "warning",
            }
        ]

    async def test_attempts_at_a_server_that_is_away_are_spaced(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(keeping, "_FIRST_PAUSE", 0.05)
        server = Server()
        server.away = True

        async def use(_: int) -> None:
            raise AssertionError("there is no session")

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(keep_session("line", server.session, use), 1)

        assert 2 <= server.opened <= 6

    async def test_what_is_no_loss_ends_it(self) -> None:
        async def use(_: int) -> None:
            raise LookupError("our own fault")

        with pytest.raises(LookupError):
            await keep_session("line", Server().session, use)


class TestLog:
    """An outage of any length is some lines in the log, not one for each attempt."""

    @pytest.fixture(autouse=True)
    def _quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(keeping, "_FIRST_PAUSE", 0.01)
        monkeypatch.setattr(keeping, "_LONGEST_PAUSE", 0.02)

    async def test_a_session_that_cannot_be_made_is_told_once(self) -> None:
        server = Server()
        server.away = True

        with capture_logs() as logged:
            await self._kept(server, until=lambda: server.opened >= 10)

        assert [line["event"] for line in logged] == ["session cannot be opened"]
        assert logged[0]["cause"] == "ConnectionRefusedError('nobody listens')"

    async def test_a_long_outage_is_told_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(keeping, "_REMIND", 0.1)
        server, clock = Server(), asyncio.get_running_loop().time
        server.away = True
        began = clock()

        with capture_logs() as logged:
            await self._kept(server, until=lambda: len(logged) == 3)

        assert clock() - began >= 0.2
        assert server.opened > 3

    async def test_its_end_is_told_once(self) -> None:
        server = Server()
        server.away = True

        with capture_logs() as logged:
            kept = asyncio.create_task(
                self._kept(server, until=lambda: logged[-1:] == [self._back()])
            )
            await self._until(lambda: server.opened >= 3)
            server.away = False
            await kept

        assert [line["log_level"] for line in logged] == ["warning", "info"]

    async def test_each_of_two_outages_is_told(self) -> None:
        server, lost = Server(), asyncio.Event()

        with capture_logs() as logged:
            kept = asyncio.create_task(
                self._kept(server, lost=lost, until=lambda: logged.count(self._back()) == 2)
            )
            await self._until(lambda: server.open == 1)
            lost.set()
            await self._until(lambda: logged.count(self._back()) == 1)
            lost.set()
            await kept

        assert [line["event"] for line in logged] == ["session lost", "session is back"] * 2

    async def test_sessions_that_never_last_are_one_outage(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(keeping, "_LONGEST_PAUSE", 30)
        server, lost = Server(), asyncio.Event()

        with capture_logs() as logged:
            kept = asyncio.create_task(
                self._kept(server, lost=lost, until=lambda: server.opened >= 4)
            )
            while not kept.done():
                lost.set()
                await asyncio.sleep(0.001)
            await kept

        assert [line["event"] for line in logged] == ["session lost"]

    @staticmethod
    def _back() -> dict[str, str]:
        return {"event": "session is back", "session": "line", "log_level": "info"}

    async def _kept(
        self,
        server: Server,
        *,
        until: Callable[[], bool],
        lost: asyncio.Event | None = None,
    ) -> None:
        """Keep a session, which is lost whenever that is said, until something holds."""
        lost = lost or asyncio.Event()

        async def use(_: int) -> None:
            await lost.wait()
            lost.clear()
            raise UnavailableError("Lost.") from ConnectionResetError("by peer")

        kept = asyncio.create_task(keep_session("line", server.session, use))
        try:
            await self._until(until)
        finally:
            kept.cancel()
            await asyncio.gather(kept, return_exceptions=True)

    @staticmethod
    async def _until(holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not holds():  # noqa: ASYNC110 - conditions of any kind
                await asyncio.sleep(0.001)


class TestWatchedBy:
    async def test_a_watch_ends_the_block_with_its_error(self) -> None:
        ended = []

        async def fail() -> NoReturn:
            raise UnavailableError("Lost.")

        async def look() -> NoReturn:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("the other watch")
            raise AssertionError

        async def work() -> None:
            async with watched_by(look(), fail()):
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.append("the block")

        with pytest.raises(UnavailableError):
            await asyncio.wait_for(work(), 5)

        assert sorted(ended) == ["the block", "the other watch"]

    async def test_the_end_of_the_block_ends_the_watches(self) -> None:
        async def look() -> NoReturn:
            await asyncio.Event().wait()
            raise AssertionError

        async with asyncio.timeout(5), watched_by(look()):
            pass
