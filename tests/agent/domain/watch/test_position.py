"""A position alone; `test_watch` and `tests/agent/api` see it move through real sessions."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from services.agent.domain.errors import SequenceAheadError
from services.agent.domain.messages import Message
from services.agent.domain.models import RunId, Session
from services.agent.domain.run_models import Run, RunState
from services.agent.domain.watch.news import Pulse, Read
from services.agent.domain.watch.position import CaughtUp, News, Position
from services.common.errors import NotFoundError
from services.common.paging import Listing
from tests.contracts.agent_stores import ALICE, Stores, memory_stores


@pytest.fixture
def stores() -> Stores:
    return memory_stores()


@pytest.fixture
async def session(stores: Stores) -> Session:
    return await stores.session()


@pytest.fixture
async def run(stores: Stores, session: Session) -> Run:
    run, _ = await stores.runs.start(ALICE, session.id, "Hello")
    return run


@pytest.fixture
async def messages(stores: Stores, session: Session, run: Run) -> list[Message]:
    """The run's question, and two more."""
    for text in ("More", "And more"):
        await stores.runs.start(ALICE, session.id, text)
    return await stores.said(session)


def at(session: Session, after: int | None, *open_runs: RunId) -> Position:
    """A position in the session."""
    return Position(ALICE, session.id, after=after, open_runs=open_runs)


def begun(session: Session, after: int | None, pulse: Pulse) -> Position:
    """A position that has begun, with nothing left to read."""
    position = at(session, after)
    assert position.begin(pulse) is None
    return position


def what(told: Sequence[tuple[News, int]]) -> list[News]:
    """What was told, but for the word that all of the past was."""
    return [news for news, _ in told if not isinstance(news, CaughtUp)]


class TestBegin:
    def test_all_that_came_after_is_to_be_read(self, session: Session) -> None:
        assert at(session, 2).begin(Pulse(5, ())) == Read(ALICE, session.id, 2)

    def test_only_what_is_new_begins_behind_the_newest_message(self, session: Session) -> None:
        position = begun(session, None, Pulse(5, ()))

        assert (position.sent, position.look.from_turn) == (5, 6)

    def test_a_sequence_that_is_not_there_yet_is_refused(self, session: Session) -> None:
        with pytest.raises(SequenceAheadError, match="5"):
            at(session, 6).begin(Pulse(5, ()))

    def test_a_session_that_is_gone_is_unknown_at_any_time(self, session: Session) -> None:
        position = begun(session, 5, Pulse(5, ()))

        for each in (position, at(session, 0)):
            with pytest.raises(NotFoundError):
                each.begin(None)


class TestMessages:
    def test_each_is_told_with_its_sequence_then_that_this_was_all(
        self, session: Session, messages: list[Message]
    ) -> None:
        position = at(session, 0)
        position.begin(Pulse(3, ()))

        told = position.advance(Pulse(3, ()), Listing(messages, more=False))

        assert told == [*zip(messages, (1, 2, 3), strict=True), (CaughtUp(), 3)]
        assert not position.behind

    def test_while_there_are_more_neither_runs_nor_the_end_of_the_past_are_told(
        self, session: Session, run: Run, messages: list[Message]
    ) -> None:
        position, pulse = at(session, 0), Pulse(3, (run,))
        position.begin(pulse)

        first = position.advance(pulse, Listing(messages[:2], more=True))

        assert [news for news, _ in first] == messages[:2]
        assert position.behind
        assert position.begin(pulse) == Read(ALICE, session.id, 2)
        rest = position.advance(pulse, Listing(messages[2:], more=False))
        assert [news for news, _ in rest] == [messages[2], run, CaughtUp()]

    def test_the_end_of_the_past_is_told_once(self, session: Session) -> None:
        position, pulse = begun(session, 3, Pulse(3, ())), Pulse(3, ())

        assert position.advance(pulse, None) == [(CaughtUp(), 3)]
        assert position.advance(pulse, None) == []


class TestRuns:
    def test_a_state_is_told_once(self, session: Session, run: Run) -> None:
        thinking = replace(run, state=RunState.THINKING)
        position = begun(session, 1, Pulse(1, ()))

        told = [position.advance(Pulse(1, (each,)), None) for each in (run, run, thinking)]

        assert [what(each) for each in told] == [[run], [], [thinking]]

    @pytest.mark.parametrize(
        "change",
        [{"discarded": True}, {"attempt": 2}, {"state": RunState.FINISHED}],
        ids=lambda change: next(iter(change)),
    )
    def test_whatever_a_watcher_can_see_of_it_is_news(
        self, session: Session, run: Run, change: dict[str, Any]
    ) -> None:
        position = begun(session, 1, Pulse(1, ()))
        position.advance(Pulse(1, (run,)), None)
        changed = replace(run, **change)

        assert what(position.advance(Pulse(1, (changed,)), None)) == [changed]

    def test_its_end_is_told_once_and_then_it_is_not_asked_for(
        self, session: Session, run: Run
    ) -> None:
        ended = replace(run, state=RunState.FINISHED)
        position = begun(session, 1, Pulse(1, ()))
        position.advance(Pulse(1, (run,)), None)
        before = position.look.open_runs

        told = [position.advance(Pulse(1, (ended,)), None) for _ in range(2)]

        assert [what(each) for each in told] == [[ended], []]
        assert (before, position.look.open_runs) == ((run.id,), ())

    def test_one_that_ended_long_ago_is_no_news(self, session: Session, run: Run) -> None:
        position = begun(session, None, Pulse(1, ()))

        assert what(position.advance(Pulse(1, (replace(run, state=RunState.ERROR),)), None)) == []

    def test_the_end_of_one_that_was_said_to_be_open_is_told(
        self, session: Session, run: Run
    ) -> None:
        position = at(session, None, run.id)
        position.begin(Pulse(1, ()))
        ended = replace(run, state=RunState.FINISHED)

        assert what(position.advance(Pulse(1, (ended,)), None)) == [ended]

    def test_while_there_are_more_of_them_it_is_behind(self, session: Session, run: Run) -> None:
        position = begun(session, 1, Pulse(1, ()))

        assert what(position.advance(Pulse(1, (run,), more=True), None)) == [run]
        assert position.behind


class TestPlace:
    def test_is_the_same_for_those_who_will_be_told_the_same(
        self, session: Session, run: Run
    ) -> None:
        early, late = begun(session, 1, Pulse(1, ())), at(session, 1)
        pulse = Pulse(1, (run,))
        early.advance(pulse, None)
        assert early.place != late.place

        late.begin(pulse)
        late.advance(pulse, None)

        assert early.place == late.place

    def test_differs_by_what_a_run_was_last_seen_to_be(self, session: Session, run: Run) -> None:
        one, other = (begun(session, 1, Pulse(1, ())) for _ in range(2))
        one.advance(Pulse(1, (run,)), None)
        other.advance(Pulse(1, (replace(run, state=RunState.THINKING),)), None)

        assert one.place != other.place
