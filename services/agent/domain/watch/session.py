"""One session that somebody watches, and those who do, grouped by how far they are."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

from services.agent.domain.models import SessionId
from services.agent.domain.watch.position import Position
from services.common.identity import Identity


@dataclass(slots=True, eq=False)
class Group:
    """Watches of one session that are equally far, so that all are told the same.

    Attributes:
        session: the session.
        position: how far they are.
        watch_ids: the watches.
    """

    session: "WatchedSession"
    position: Position
    watch_ids: set[int]


@dataclass(slots=True, eq=False)
class WatchedSession:
    """A session that one caller watches.

    Attributes:
        identity: its user.
        session_id: the session.
        has_news: to be called when there may be news.
        groups: who watches it; mostly there is one group, of one watch.
        hints: lets go of the hints at it.
    """

    identity: Identity
    session_id: SessionId
    has_news: Callable[[], None]
    groups: list[Group] = field(default_factory=list)
    hints: ExitStack = field(default_factory=ExitStack)

    @property
    def key(self) -> tuple[Identity, SessionId]:
        """What tells it from others."""
        return self.identity, self.session_id

    def join(self, position: Position, watch_id: int) -> Group:
        """Add a watch; gives its group."""
        group = self._group_at(position.place)
        if group is None:
            group = Group(self, position, set())
            self.groups.append(group)
        group.watch_ids.add(watch_id)
        return group

    def leave(self, group: Group, watch_id: int) -> bool:
        """Take a watch out of its group; gives whether it was the session's last."""
        group.watch_ids.discard(watch_id)
        if not group.watch_ids:
            self.groups.remove(group)
        return not self.groups

    def merge(self) -> Iterator[tuple[int, Group]]:
        """Unite groups that are equally far by now; gives the watches that are in another one."""
        if len(self.groups) > 1:
            groups, self.groups = self.groups, []
            for group in groups:
                into = self._group_at(group.position.place)
                if into is None:
                    self.groups.append(group)
                else:
                    into.watch_ids |= group.watch_ids
                    yield from ((watch_id, into) for watch_id in group.watch_ids)

    def _group_at(self, place: tuple[object, ...]) -> Group | None:
        return next((each for each in self.groups if each.position.place == place), None)
