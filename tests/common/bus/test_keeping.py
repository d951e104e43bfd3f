"""Keeping a session, whatever it leads to."""

import asyncio
from collections.abc import AsyncIterator
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
        causes = [(entry["session"], entry["cause"]) for entry in logged]
        assert causes == [("line", "ConnectionResetError('by peer')")] * 2

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
