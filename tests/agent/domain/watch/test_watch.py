"""Watching a session in memory; tests/agent/api watches one in PostgreSQL."""

import asyncio
import json
import random
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from services.agent.domain.chat import Ending
from services.agent.domain.errors import SequenceAheadError
from services.agent.domain.messages import Draft, Message, Role, ToolCall
from services.agent.domain.models import Session, SessionId, ToolCallId
from services.agent.domain.queue import Claim
from services.agent.domain.run_models import Run, RunState, StopReason, Usage
from services.agent.domain.watch.news import Look, Mark, NewsStore, Pulse, Read
from services.agent.domain.watch.watch import Event, GoAway, Heartbeat, Watch
from services.common.clock import now
from services.common.errors import NotFoundError, UnavailableError
from services.common.ids import new_id
from services.common.paging import Listing
from services.common.tasks import BackgroundTasks, background_tasks
from tests.agent.hints import LocalHints
from tests.contracts.agent_stores import ALICE, BOB, Stores, answer, memory_stores

CASE = Path(__file__).parents[3] / "cases/31-resume-no-loss-no-dup"
ENDED = Ending(RunState.FINISHED, StopReason.END_TURN)


@dataclass
class Chat:
    """A session with all that is needed to go on with it and to watch it."""

    stores: Stores
    session: Session
    hints: LocalHints
    tasks: BackgroundTasks | None = None
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    heartbeat: float = 60.0

    def watch(self, *, news: Any = None) -> Watch:
        """Watches its sessions."""
        watch = Watch(
            news or self.stores.news,
            listener=self.hints,
            clock=now,
            draining=self.draining,
            heartbeat=self.heartbeat,
        )
        if self.tasks is not None:
            self.tasks.start("keep", watch.keep())
        return watch

    def events(self, after: int | None = None) -> AsyncGenerator[Event, None]:
        """What a watcher is told."""
        return self.watch().watch(ALICE, self.session.id, after=after)

    async def say(self, text: str = "Hello") -> Run:
        """A waiting run."""
        run, _ = await self.stores.runs.start(ALICE, self.session.id, text)
        self.hints.notify(self.session.id)
        return run

    async def claim(self) -> Claim:
        """The run, held."""
        claim = await self.stores.claimed()
        self.hints.notify(self.session.id)
        return claim

    async def say_and_claim(self) -> Claim:
        """A run, held."""
        await self.say()
        return await self.claim()

    async def watched(self) -> None:
        """Wait until a watcher has told all there was."""
        async with asyncio.timeout(5):
            while not self.hints.subscribed[self.session.id]:  # noqa: ASYNC110 - set in a few turns
                await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)

    async def finish(self, claim: Claim) -> None:
        """The run's end, with an answer."""
        await self.stores.queue.journal(claim).finish(ENDED, [answer()])
        self.hints.notify(self.session.id)


@pytest.fixture
async def chat() -> AsyncIterator[Chat]:
    stores = memory_stores()
    async with background_tasks() as tasks:
        yield Chat(stores, await stores.session(), LocalHints(), tasks)


async def told(events: AsyncGenerator[Event, None], count: int) -> list[Event]:
    """The next events."""
    async with asyncio.timeout(5):
        return [await anext(events) for _ in range(count)]


async def all_messages(events: AsyncGenerator[Event, None], count: int) -> list[int]:
    """The sequences of the next messages, whatever else is told between them."""
    heard: list[int] = []
    async with asyncio.timeout(5):
        while len(heard) < count:
            heard += sequences([await anext(events)])
    return heard


async def silent(chat: Chat, events: AsyncGenerator[Event, None]) -> bool:
    """Whether nothing more is told of what has happened already, however often one looks."""
    chat.hints.poll = 0.005
    try:
        async with asyncio.timeout(0.05):
            await anext(events)
    except TimeoutError:
        return True
    return False


def sequences(events: list[Event]) -> list[int]:
    return [event.what.sequence for event in events if isinstance(event.what, Message)]


def states(events: list[Event]) -> list[RunState]:
    return [event.what.state for event in events if isinstance(event.what, Run)]


class TestWhereItBegins:
    async def test_zero_is_the_beginning(self, chat: Chat) -> None:
        await chat.say()
        await chat.say()

        async with aclosing(chat.events(0)) as events:
            assert sequences(await told(events, 2)) == [1, 2]

    async def test_a_sequence_already_seen_is_not_told_again(self, chat: Chat) -> None:
        for _ in range(3):
            await chat.say()

        async with aclosing(chat.events(2)) as events:
            first, *runs = await told(events, 4)

        assert sequences([first]) == [3]
        assert states(runs) == [RunState.IDLE] * 3

    async def test_unset_is_only_what_is_new(self, chat: Chat) -> None:
        await chat.say()
        await chat.finish(await chat.claim())

        async with aclosing(chat.events()) as events:
            assert await silent(chat, events)
        async with aclosing(chat.events()) as events:
            following = asyncio.ensure_future(told(events, 2))
            await chat.watched()
            await chat.say()
            event, run = await following

        assert (sequences([event]), event.through) == ([3], 3)
        assert states([run]) == [RunState.IDLE]

    async def test_a_sequence_that_does_not_exist_yet_is_refused(self, chat: Chat) -> None:
        await chat.say()

        async with aclosing(chat.events(2)) as events:
            with pytest.raises(SequenceAheadError) as ahead:
                await anext(events)

        assert ahead.value.metadata == {"last_sequence": "1"}

    async def test_nobody_elses_session_is_watched(self, chat: Chat) -> None:
        for identity, session_id in ((BOB, chat.session.id), (ALICE, SessionId(new_id()))):
            events = chat.watch().watch(identity, session_id)
            with pytest.raises(NotFoundError):
                await anext(events)


class TestMessages:
    async def test_history_and_live_meet_without_a_hole_or_a_repeat(self, chat: Chat) -> None:
        """Each time a message is committed somewhere between the replay and the live part."""
        for seed in range(300):
            delays = random.Random(seed)
            fresh = Chat(chat.stores, await chat.stores.session(), LocalHints(poll=0.01))
            await fresh.say()

            async def commit(chat: Chat = fresh, delays: random.Random = delays) -> None:
                for _ in range(4):
                    for _ in range(delays.randrange(8)):
                        await asyncio.sleep(0)
                    await chat.say()

            async with aclosing(fresh.events(0)) as events, background_tasks() as tasks:
                tasks.start("commit", commit())
                heard = await all_messages(events, 5)

            assert heard == [1, 2, 3, 4, 5], f"seed {seed}"

    async def test_a_long_history_comes_page_by_page(self, chat: Chat) -> None:
        pages = Counting(chat.stores.news)
        for _ in range(250):
            await chat.finish(await chat.say_and_claim())

        watch = chat.watch(news=pages)
        async with aclosing(watch.watch(ALICE, chat.session.id, after=0)) as events:
            heard = await told(events, 501)

        assert list(range(1, 501)) == sequences(heard[:-1])
        assert states(heard[-1:]) == [RunState.FINISHED]
        assert pages.most == {100}
        assert len(pages.reads) == 5

    async def test_a_lost_hint_costs_a_poll(self, chat: Chat) -> None:
        chat.hints.poll, chat.hints.lost = 0.02, True

        async with aclosing(chat.events()) as events:
            following = asyncio.ensure_future(told(events, 1))
            await chat.watched()
            await chat.say()

            assert sequences(await following) == [1]

    async def test_many_watchers_each_hear_everything(self, chat: Chat) -> None:
        async def listen() -> list[int]:
            async with aclosing(chat.events(0)) as events:
                return await all_messages(events, 20)

        async with asyncio.TaskGroup() as group:
            listeners = [group.create_task(listen()) for _ in range(10)]
            for _ in range(5):
                await chat.finish(await chat.say_and_claim())
                await asyncio.sleep(0)
            for _ in range(5):
                await chat.finish(await chat.say_and_claim())

        assert [list(range(1, 21))] * 10 == [listener.result() for listener in listeners]


class TestRuns:
    async def test_the_run_that_goes_on_is_told_at_the_start(self, chat: Chat) -> None:
        await chat.say()
        await chat.claim()

        async with aclosing(chat.events()) as events:
            [event] = await told(events, 1)

        assert (states([event]), event.through) == ([RunState.PLANNING], 1)

    async def test_each_change_is_told_once_and_after_its_messages(self, chat: Chat) -> None:
        async with aclosing(chat.events(0)) as events:
            heard = []
            run = await chat.say()
            heard += await told(events, 2)
            claim = await chat.claim()
            heard += await told(events, 1)
            await chat.stores.runs.cancel(ALICE, run.id)
            chat.hints.notify(chat.session.id)
            heard += await told(events, 1)
            assert await silent(chat, events)

        kinds = [type(event.what) for event in heard]
        assert [Message, Run, Run, Run] == kinds
        assert states(heard) == [RunState.IDLE, RunState.PLANNING, RunState.PLANNING]
        assert isinstance(heard[-1].what, Run)
        assert heard[-1].what.cancel_requested
        assert claim.run.id == heard[-1].what.id

    async def test_an_end_is_told_after_the_answer(self, chat: Chat) -> None:
        claim = await chat.say_and_claim()
        async with aclosing(chat.events(1)) as events:
            await told(events, 1)
            await chat.finish(claim)
            message, end = await told(events, 2)

        assert sequences([message]) == [2]
        assert (states([end]), end.through) == ([RunState.FINISHED], 2)

    async def test_a_run_that_came_and_went_unseen_is_told(self, chat: Chat) -> None:
        async with aclosing(chat.events(0)) as events:
            await chat.finish(await chat.say_and_claim())
            heard = await told(events, 3)

        assert sequences(heard) == [1, 2]
        assert states(heard) == [RunState.FINISHED]

    async def test_who_resumes_hears_how_the_last_run_ended(self, chat: Chat) -> None:
        for _ in range(2):
            await chat.finish(await chat.say_and_claim())

        async with aclosing(chat.events(4)) as events:
            [event] = await told(events, 1)
            assert await silent(chat, events)

        assert isinstance(event.what, Run)
        assert (event.what.state, event.what.turn) == (RunState.FINISHED, 3)

    async def test_waiting_runs_are_told_in_their_order(self, chat: Chat) -> None:
        runs = [await chat.say() for _ in range(3)]

        async with aclosing(chat.events()) as events:
            waiting = await told(events, 3)
            await chat.finish(await chat.claim())
            changed = await told(events, 2)

        found = [each.what.id for each in waiting if isinstance(each.what, Run)]
        assert [run.id for run in runs] == found
        assert states(changed) == [RunState.FINISHED]


class TestHowItEnds:
    async def test_a_deleted_session_is_not_found_any_more(self, chat: Chat) -> None:
        await chat.say()
        async with aclosing(chat.events(0)) as events:
            await told(events, 2)
            await chat.stores.sessions.delete(ALICE, chat.session.id)
            chat.hints.notify(chat.session.id)

            with pytest.raises(NotFoundError):
                await told(events, 1)

    async def test_a_draining_replica_lets_its_watchers_go_at_once(self, chat: Chat) -> None:
        """S8: and tells them where to go on."""
        await chat.say()
        async with aclosing(chat.events()) as events:
            await told(events, 1)
            following = asyncio.ensure_future(told(events, 1))
            await chat.watched()
            chat.draining.set()

            assert await following == [Event(GoAway(), 1)]
            with pytest.raises(StopAsyncIteration):
                await anext(events)

    async def test_what_is_there_is_told_before_the_watch_drains(self, chat: Chat) -> None:
        await chat.say()
        chat.draining.set()

        async with aclosing(chat.events(0)) as events:
            *before, last = [event async for event in events]

        assert (sequences(before), states(before)) == ([1], [RunState.IDLE])
        assert last == Event(GoAway(), 1)

    async def test_who_leaves_is_forgotten(self, chat: Chat) -> None:
        async with aclosing(chat.events()) as events:
            assert await silent(chat, events)

        assert not chat.hints.subscribed[chat.session.id]


class TestHeartbeats:
    async def test_they_fill_the_silence(self, chat: Chat) -> None:
        chat.heartbeat = 0.02
        await chat.finish(await chat.say_and_claim())

        async with aclosing(chat.events()) as events:
            heard = await told(events, 3)

        assert [event.through for event in heard] == [2, 2, 2]
        times = [event.what.time for event in heard if isinstance(event.what, Heartbeat)]
        assert len(times) == 3
        assert times == sorted(times)

    async def test_they_do_not_depend_on_hints(self, chat: Chat) -> None:
        chat.heartbeat, chat.hints.poll = 0.02, 60

        async with aclosing(chat.events()) as events:
            [event] = await told(events, 1)

        assert isinstance(event.what, Heartbeat)


class TestCase31:
    """tests/cases/31-resume-no-loss-no-dup, by its timeline."""

    async def test_every_client_gets_each_message_once(self, chat: Chat) -> None:
        timeline = json.loads((CASE / "timeline.json").read_text())
        commits = [
            (step["seq"], step["kind"]) for step in timeline if "seq" in step and "kind" in step
        ]
        expected = json.loads((CASE / "expected.json").read_text())
        write = Script(chat)
        heard = {}

        await write.commit(*commits[0])
        async with aclosing(chat.events(0)) as events:
            first = asyncio.ensure_future(all_messages(events, 2))
            await write.commit(*commits[1])
            heard["A first"] = await first
        await write.commit(*commits[2])
        await write.commit(*commits[3])
        async with aclosing(chat.events(2)) as again, aclosing(chat.events(0)) as other:
            second = asyncio.ensure_future(all_messages(again, 4))
            await write.commit(*commits[4])
            all_of_it = asyncio.ensure_future(all_messages(other, 6))
            await write.commit(*commits[5])
            heard["A second"], heard["B"] = await second, await all_of_it
        async with aclosing(chat.events(6)) as events:
            [end] = await told(events, 1)
            heard["C"] = sequences([end])
            assert await silent(chat, events)
        async with aclosing(chat.events(99)) as events:
            with pytest.raises(SequenceAheadError):
                await anext(events)

        assert {name: expected[name] for name in heard} == heard
        assert states([end]) == [RunState.FINISHED]


class Script:
    """Commits the messages of a run one by one; the sixth ends it."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._claim: Claim | None = None

    async def commit(self, sequence: int, kind: str) -> None:
        """The message of this sequence."""
        if self._claim is None:
            assert (sequence, kind) == (1, "user")
            self._claim = await self._chat.say_and_claim()
            return
        journal = self._chat.stores.queue.journal(self._claim)
        call = ToolCall(ToolCallId("c"), "look", "{}")
        if kind == "tool":
            done = Draft(Role.TOOL, "seen", tool_call_id=call.id, tool_name="look")
            [message] = await journal.append_tool_results([done])
            assert sequence == message.sequence
        elif sequence < 6:
            draft = Draft(Role.ASSISTANT, "", tool_calls=(call,))
            assert sequence == (await journal.append_assistant(draft, usage=Usage())).sequence
        else:
            await journal.finish(ENDED, [answer()])
        self._chat.hints.notify(self._chat.session.id)


class Counting:
    """A store that counts how it is asked, and fails when it is told to."""

    def __init__(self, store: NewsStore) -> None:
        self._store = store
        self.failing = False
        self.looks: list[int] = []
        self.reads: list[int] = []
        self.polled: list[int] = []
        self.most: set[int] = set()

    async def pulses(self, looks: Sequence[Look]) -> Sequence[Pulse | None]:
        """As the store does."""
        self.looks.append(len(looks))
        if self.failing:
            raise UnavailableError("The database is away.")
        return await self._store.pulses(looks)

    async def messages(
        self, reads: Sequence[Read], *, most: int, max_bytes: int
    ) -> Sequence[Listing[Message]]:
        """As the store does."""
        self.reads.append(len(reads))
        self.most.add(most)
        return await self._store.messages(reads, most=most, max_bytes=max_bytes)

    async def moved(self, marks: Sequence[Mark]) -> Sequence[Mark]:
        """As the store does."""
        self.polled.append(len(marks))
        return await self._store.moved(marks)
