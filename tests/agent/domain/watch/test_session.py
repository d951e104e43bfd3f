"""Who watches a session, by how far they are."""

from services.agent.domain.models import SessionId
from services.agent.domain.watch.news import Pulse
from services.agent.domain.watch.position import Position
from services.agent.domain.watch.session import WatchedSession
from tests.contracts.agent_stores import ALICE

SESSION = SessionId("01936d3e-0000-7000-8000-000000000000")


def watched() -> WatchedSession:
    """A session that nobody watches yet."""
    return WatchedSession(ALICE, SESSION, lambda: None)


def at(after: int) -> Position:
    """A position in it."""
    return Position(ALICE, SESSION, after=after)


def members(session: WatchedSession) -> list[set[int]]:
    """The watches of each group."""
    return [group.watch_ids for group in session.groups]


class TestJoin:
    def test_those_who_are_equally_far_are_one_group(self) -> None:
        session = watched()

        for watch_id, after in enumerate((0, 3, 0)):
            session.join(at(after), watch_id)

        assert members(session) == [{0, 2}, {1}]


class TestLeave:
    def test_tells_whether_it_was_the_last(self) -> None:
        session = watched()
        groups = [session.join(at(after), watch_id) for watch_id, after in enumerate((0, 0, 3))]

        left = [session.leave(group, watch_id) for watch_id, group in enumerate(groups)]

        assert left == [False, False, True]
        assert session.groups == []


class TestMerge:
    def test_unites_those_who_have_come_equally_far(self) -> None:
        session = watched()
        ahead, behind, elsewhere = (
            session.join(at(after), watch_id) for watch_id, after in enumerate((3, 2, 1))
        )
        for group in (ahead, behind):
            group.position.sent = 3
            group.position.begin(Pulse(3, ()))

        moved = dict(session.merge())

        assert moved == {1: ahead}
        assert session.groups == [ahead, elsewhere]
        assert members(session) == [{0, 1}, {2}]

    def test_leaves_one_group_alone(self) -> None:
        session = watched()
        session.join(at(0), 1)

        assert list(session.merge()) == []
        assert members(session) == [{1}]
