"""One poll for everything that is watched."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest

from services.agent.domain.models import Session
from services.agent.domain.watch.news import Mark, NewsStore
from services.agent.domain.watch.poll import _MOST_AT_ONCE, WatchPoll
from services.agent.domain.watch.session import WatchedSession
from services.common.errors import UnavailableError
from services.common.identity import Identity
from services.common.tasks import task_group
from tests.agent.hints import LocalHints
from tests.contracts.agent_stores import ALICE, BOB, Stores, memory_stores

POLLED = "watches"


@dataclass
class Spied:
    """A store's looks for what moved, noted; with an error instead of the first so many."""

    store: NewsStore
    errors: int = 0
    looks: list[int] = field(default_factory=list)
    looked: asyncio.Event = field(default_factory=asyncio.Event)

    async def moved(self, marks: Sequence[Mark]) -> Sequence[Mark]:
        """As the store has it."""
        self.looks.append(len(marks))
        self.looked.set()
        if self.errors:
            self.errors -= 1
            raise UnavailableError("The database is down.")
        return await self.store.moved(marks)


@dataclass
class Watched:
    """A session that is watched, and how often it was said to have news."""

    identity: Identity
    session: Session
    news: int = 0

    def __post_init__(self) -> None:
        self.watched = WatchedSession(self.identity, self.session.id, self._has_news)

    def _has_news(self) -> None:
        self.news += 1


class Polling:
    """A poll that looks when told to."""

    def __init__(self, stores: Stores) -> None:
        self.spied = Spied(stores.news)
        self.hints = LocalHints(poll=3600)
        self.poll = WatchPoll(cast("NewsStore", self.spied), self.hints)

    async def look(self) -> None:
        """Let it look once, to the end."""
        async with asyncio.timeout(5):
            async with task_group() as group:
                polling = group.create_task(self.poll.run())
                await self.hints.waiter(POLLED)
                [waiter] = self.hints.subscribed[POLLED]
                waiter.waited.clear()
                self.hints.notify(POLLED)
                await waiter.waited.wait()
                polling.cancel()


@pytest.fixture
def stores() -> Stores:
    return memory_stores()


@pytest.fixture
def polling(stores: Stores) -> Polling:
    return Polling(stores)


async def test_only_those_that_moved_have_news(stores: Stores, polling: Polling) -> None:
    quiet, moving = [Watched(ALICE, await stores.session()) for _ in range(2)]
    for each in (quiet, moving):
        polling.poll.add(each.watched)
    await polling.look()
    before = quiet.news, moving.news

    await stores.runs.start(ALICE, moving.session.id, "Hello")
    await polling.look()
    await polling.look()

    assert (quiet.news, moving.news) == (before[0], before[1] + 1)


async def test_all_callers_who_watch_it_are_told(stores: Stores, polling: Polling) -> None:
    session = await stores.session()
    callers = [Watched(ALICE, session) for _ in range(3)]
    for each in callers:
        polling.poll.add(each.watched)
    polling.poll.discard(callers[2].watched)

    await polling.look()

    assert [each.news for each in callers] == [1, 1, 0]
    assert polling.spied.looks == [1]


async def test_a_stranger_is_told_as_if_the_session_were_gone(
    stores: Stores, polling: Polling
) -> None:
    session = await stores.session()
    owner, stranger = Watched(ALICE, session), Watched(BOB, session)
    for each in (owner, stranger):
        polling.poll.add(each.watched)
    await polling.look()
    before = stranger.news

    await stores.runs.start(ALICE, session.id, "Hello")
    await polling.look()

    assert stranger.news == before


async def test_very_many_are_looked_at_in_parts(stores: Stores, polling: Polling) -> None:
    session = await stores.session()
    owners = [Identity("acme", f"user{number}") for number in range(_MOST_AT_ONCE + 1)]
    for owner in owners:
        polling.poll.add(Watched(owner, session).watched)

    await polling.look()

    assert polling.spied.looks == [_MOST_AT_ONCE, 1]


async def test_nothing_is_asked_when_nothing_is_watched(stores: Stores, polling: Polling) -> None:
    watched = Watched(ALICE, await stores.session())
    polling.poll.add(watched.watched)
    polling.poll.discard(watched.watched)

    await polling.look()

    assert polling.spied.looks == []


async def test_it_goes_on_after_an_outage(stores: Stores, polling: Polling) -> None:
    watched = Watched(ALICE, await stores.session())
    polling.poll.add(watched.watched)
    polling.spied.errors = 1

    await polling.look()
    await polling.look()

    assert watched.news == 1
