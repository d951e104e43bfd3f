"""Many watches of one caller in memory; `test_watch` has one each."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from services.agent.domain.errors import SequenceAheadError
from services.agent.domain.messages import Message
from services.agent.domain.models import Session
from services.agent.domain.run_models import Run
from services.agent.domain.watch.news import Look, Mark, NewsStore, Pulse, Read
from services.agent.domain.watch.poll import WatchPoll
from services.agent.domain.watch.position import CaughtUp
from services.agent.domain.watch.watching import Told, Watching
from services.common.errors import NotFoundError, UnavailableError
from services.common.paging import Listing
from tests.agent.hints import LocalHints
from tests.contracts.agent_stores import ALICE, BOB, memory_stores


@dataclass
class Spied:
    """A store whose looks and reads are counted, with errors planted."""

    store: NewsStore
    errors: int = 0
    looks: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)

    async def pulses(self, looks: Sequence[Look]) -> Sequence[Pulse | None]:
        """As the store has it."""
        self.looks.append(len(looks))
        return await self.store.pulses(looks)

    async def messages(
        self, reads: Sequence[Read], *, most: int, max_bytes: int
    ) -> Sequence[Listing[Message]]:
        """As the store has it, but for planted errors."""
        self.reads.append(len(reads))
        if self.errors:
            self.errors -= 1
            raise UnavailableError("The database is down.")
        return await self.store.messages(reads, most=most, max_bytes=max_bytes)

    async def moved(self, marks: Sequence[Mark]) -> Sequence[Mark]:
        """As the store has it."""
        return await self.store.moved(marks)


class Caller:
    """One who watches sessions over stores in memory."""

    def __init__(self) -> None:
        self.stores = memory_stores()
        self.hints = LocalHints(poll=3600)
        self.spied = Spied(self.stores.news)
        self.watching = Watching(self.spied, self.hints, WatchPoll(self.spied, self.hints))

    async def session(self, messages: int = 0) -> Session:
        """A session with so many messages."""
        session = await self.stores.session()
        for number in range(messages):
            await self.say(session, str(number))
        return session

    async def say(self, session: Session, text: str = "Hello") -> None:
        """One message more."""
        await self.stores.runs.start(ALICE, session.id, text)
        self.hints.notify(session.id)

    async def told(self) -> list[Told]:
        """All that is to be told by now."""
        told: list[Told] = []
        async with asyncio.timeout(5):
            while news := await self.watching.next(within=0.01):
                told += news
        return told


@pytest.fixture
def caller() -> Iterator[Caller]:
    caller = Caller()
    yield caller
    caller.watching.close()
    assert not any(caller.hints.subscribed.values())


def heard(told: Sequence[Told], watch_id: int) -> list[int]:
    """The sequences of the messages that a watch was told."""
    return [
        each.what.sequence
        for each in told
        if watch_id in each.watch_ids and isinstance(each.what, Message)
    ]


def errors(told: Sequence[Told]) -> dict[int, type[object]]:
    """The errors that ended watches."""
    return {
        watch_id: type(each.what)
        for each in told
        for watch_id in each.watch_ids
        if isinstance(each.what, Exception)
    }


class TestTold:
    async def test_each_watch_begins_where_it_says(self, caller: Caller) -> None:
        session = await caller.session(messages=3)
        for watch_id, after in enumerate((0, 2, None)):
            caller.watching.begin(watch_id, ALICE, session.id, after=after)
        past = await caller.told()

        await caller.say(session)
        new = await caller.told()

        assert [heard(past, watch_id) for watch_id in range(3)] == [[1, 2, 3], [3], []]
        assert [heard(new, watch_id) for watch_id in range(3)] == [[4], [4], [4]]

    async def test_those_who_came_equally_far_are_told_together(self, caller: Caller) -> None:
        session = await caller.session(messages=2)
        for watch_id, after in enumerate((0, 1, 2)):
            caller.watching.begin(watch_id, ALICE, session.id, after=after)
        await caller.told()
        caller.spied.reads.clear()

        await caller.say(session)
        told = await caller.told()

        [message] = [each for each in told if isinstance(each.what, Message)]
        assert sorted(message.watch_ids) == [0, 1, 2]
        assert caller.spied.reads == [1]

    async def test_sessions_with_news_are_read_together_and_others_not_at_all(
        self, caller: Caller
    ) -> None:
        sessions = [await caller.session(messages=1) for _ in range(5)]
        for watch_id, session in enumerate(sessions):
            caller.watching.begin(watch_id, ALICE, session.id, after=0)
        await caller.told()
        caller.spied.looks.clear()
        caller.spied.reads.clear()

        for session in sessions[:3]:
            await caller.say(session)
        told = await caller.told()

        assert [heard(told, watch_id) for watch_id in range(5)] == [[2], [2], [2], [], []]
        assert (caller.spied.looks, caller.spied.reads) == ([3], [3])

    async def test_each_is_told_through_which_sequence_it_knows_all(self, caller: Caller) -> None:
        session = await caller.session(messages=2)
        caller.watching.begin(7, ALICE, session.id, after=0)

        told = await caller.told()

        assert [each.through for each in told if isinstance(each.what, Message)] == [1, 2]
        assert {each.through for each in told if isinstance(each.what, Run | CaughtUp)} == {2}

    async def test_very_many_sessions_all_get_their_turn(self, caller: Caller) -> None:
        sessions = [await caller.session(messages=1) for _ in range(250)]
        for watch_id, session in enumerate(sessions):
            caller.watching.begin(watch_id, ALICE, session.id, after=0)

        told = await caller.told()

        assert all(heard(told, watch_id) == [1] for watch_id in range(250))

    async def test_news_of_very_many_sessions_at_once_reach_all_of_them(
        self, caller: Caller
    ) -> None:
        sessions = [await caller.session() for _ in range(250)]
        for watch_id, session in enumerate(sessions):
            caller.watching.begin(watch_id, ALICE, session.id, after=0)
        await caller.told()

        for session in sessions:
            await caller.say(session)
        told = await caller.told()

        assert all(heard(told, watch_id) == [1] for watch_id in range(250))


class TestEnds:
    async def test_one_watch_is_refused_alone(self, caller: Caller) -> None:
        session = await caller.session(messages=1)
        caller.watching.begin(1, ALICE, session.id, after=0)
        caller.watching.begin(2, ALICE, session.id, after=9)
        caller.watching.begin(3, BOB, session.id, after=0)
        caller.watching.refuse(4, NotFoundError("No."))

        told = await caller.told()

        assert errors(told) == {2: SequenceAheadError, 3: NotFoundError, 4: NotFoundError}
        assert heard(told, 1) == [1]

    async def test_a_deleted_session_ends_its_watches(self, caller: Caller) -> None:
        session = await caller.session(messages=1)
        for watch_id in (1, 2):
            caller.watching.begin(watch_id, ALICE, session.id, after=0)
        await caller.told()

        await caller.stores.sessions.delete(ALICE, session.id)
        caller.hints.notify(session.id)

        assert errors(await caller.told()) == {1: NotFoundError, 2: NotFoundError}
        assert not caller.hints.subscribed[session.id]

    async def test_one_that_ended_is_told_no_more_and_the_others_are(self, caller: Caller) -> None:
        session = await caller.session()
        for watch_id in (1, 2):
            caller.watching.begin(watch_id, ALICE, session.id, after=0)
        await caller.told()

        caller.watching.end(1)
        caller.watching.end(1)
        await caller.say(session)
        told = await caller.told()

        assert (heard(told, 1), heard(told, 2)) == ([], [1])


class TestNext:
    async def test_nothing_new_for_so_long_is_nothing(self, caller: Caller) -> None:
        assert await caller.watching.next(within=0.001) == ()

    async def test_who_is_woken_returns(self, caller: Caller) -> None:
        waiting = asyncio.ensure_future(caller.watching.next())
        await asyncio.sleep(0)

        caller.watching.wake()

        assert await asyncio.wait_for(waiting, 5) == ()

    async def test_an_outage_costs_nothing_and_repeats_nothing(self, caller: Caller) -> None:
        session = await caller.session(messages=2)
        caller.watching.begin(1, ALICE, session.id, after=0)
        caller.spied.errors = 2

        for _ in range(2):
            with pytest.raises(UnavailableError):
                await caller.watching.next(within=1)

        assert heard(await caller.told(), 1) == [1, 2]
