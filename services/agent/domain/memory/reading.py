"""Reads as much of a session as a model can be shown, and little more."""

from typing import Final

from services.agent.domain.memory.compaction import Pages
from services.agent.domain.memory.models import Place, Said
from services.agent.domain.memory.store import MemoryStore
from services.agent.domain.messages import Message
from services.agent.domain.models import SessionId
from services.agent.domain.queue import MAX_HISTORY_BYTES
from services.agent.domain.turn.context import chat_message
from services.agent.domain.turn.tokens import estimate_message
from services.common.identity import Identity
from services.common.paging import Listing

MOST_MESSAGES: Final = 2000
"""How many messages of past turns a model is shown at most."""

_FIRST_PAGE = 64
_NEXT_PAGE = 200


async def newest(
    store: MemoryStore,
    identity: Identity,
    session_id: SessionId,
    *,
    after: Place,
    before: int,
    tokens: int,
    most: int | None = None,
) -> tuple[list[Message], bool]:
    """The newest messages of past turns, oldest first, and whether there are more.

    They cost at least so many tokens, if there are as many; the turn that passes the bound may lack
    its beginning.

    Args:
        store: holds them.
        identity: the user.
        session_id: the session.
        after: behind this place.
        before: in turns before this one.
        tokens: what they may cost.
        most: how many are read at most, where that is fewer than 2,000.
    """
    limit = MOST_MESSAGES if most is None else min(most, MOST_MESSAGES)
    found: list[Said] = []
    end, size = Place(before, 0), min(_FIRST_PAGE, limit)
    while True:
        page = await store.page(
            identity,
            session_id,
            after=after,
            before=end,
            newest_first=True,
            most=size,
            max_bytes=MAX_HISTORY_BYTES,
        )
        found += page.items
        tokens -= sum(estimate_message(chat_message(each.message)) for each in page.items)
        cut_off = len(page.items) < size
        if not page.more or tokens < 0 or cut_off or len(found) >= limit:
            return [each.message for each in reversed(found)], page.more
        end, size = found[-1].place, min(2 * size, limit - len(found))


def pages_before(
    store: MemoryStore, identity: Identity, session_id: SessionId, *, before: int
) -> Pages:
    """Gives the messages of turns before one, page by page, oldest first."""

    async def page(after: Place) -> Listing[Said]:
        return await store.page(
            identity,
            session_id,
            after=after,
            before=Place(before, 0),
            newest_first=False,
            most=_NEXT_PAGE,
            max_bytes=MAX_HISTORY_BYTES,
        )

    return page
