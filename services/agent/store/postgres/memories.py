"""What is remembered of sessions, in PostgreSQL."""

from collections.abc import Sequence
from typing import Final

from asyncpg import Record

from services.agent.domain.errors import unknown
from services.agent.domain.memory.models import LAST, Memory, Place, Said, Summary
from services.agent.domain.models import SessionId
from services.agent.store.postgres.rows import message_of
from services.common.db import Pool, PooledConnection, connection
from services.common.identity import Identity
from services.common.paging import Listing

# The first summary makes the row, unless somebody else was faster; each later one covers more turns
# than the one before, and is made from what is there. A row `held` is what allows it.
PUT: Final = """
INSERT INTO chat_memory (
    session_id, revision, through_turn, summary, question, messages, model, update_time)
SELECT held.session_id, 1, $1, $2, $3, $4, $5, clock_timestamp() FROM held
ON CONFLICT (session_id) DO UPDATE SET
    revision = chat_memory.revision + 1, through_turn = excluded.through_turn,
    summary = excluded.summary, question = excluded.question, messages = excluded.messages,
    model = excluded.model, update_time = excluded.update_time
WHERE chat_memory.revision = $6
  AND greatest(chat_memory.through_turn, chat_memory.cleared_turn) < excluded.through_turn
RETURNING *
"""
"""Keeps a summary for the session of the row `held`; $1 to $6 are `put_values`."""

_PUT = f"""
WITH held AS (
    SELECT id AS session_id FROM chat_session
    WHERE tenant = $7 AND user_id = $8 AND id = $9 FOR KEY SHARE
)
{PUT}
"""
_GET = """
SELECT chat_memory.* FROM chat_memory
JOIN chat_session ON chat_session.id = chat_memory.session_id
WHERE chat_session.tenant = $1 AND chat_session.user_id = $2 AND chat_session.id = $3
"""
_OPEN_TURN = """
SELECT run.turn FROM run
JOIN chat_session ON chat_session.id = run.session_id
WHERE chat_session.tenant = $1 AND chat_session.user_id = $2 AND chat_session.id = $3
  AND run.end_time IS NULL
ORDER BY run.turn LIMIT 1
"""
_CLEAR = """
WITH held AS (
    SELECT id AS session_id FROM chat_session
    WHERE tenant = $1 AND user_id = $2 AND id = $3 FOR KEY SHARE
)
INSERT INTO chat_memory (session_id, revision, cleared_turn, update_time)
SELECT
    held.session_id, 1,
    coalesce((
        SELECT turn FROM chat_message WHERE chat_message.session_id = held.session_id
        ORDER BY turn DESC, sequence DESC LIMIT 1
    ), 0),
    clock_timestamp()
FROM held
ON CONFLICT (session_id) DO UPDATE SET
    revision = chat_memory.revision + 1,
    cleared_turn = greatest(chat_memory.cleared_turn, excluded.cleared_turn),
    through_turn = 0, summary = NULL, question = NULL, messages = 0, model = NULL,
    update_time = excluded.update_time
RETURNING *
"""
# The revision changes in any case, so that a summary that is being made of the turn is not kept.
_RESET = """
INSERT INTO chat_memory (session_id, revision, update_time) VALUES ($1, 1, clock_timestamp())
ON CONFLICT (session_id) DO UPDATE SET
    revision = chat_memory.revision + 1,
    through_turn = CASE WHEN chat_memory.through_turn < $2 THEN chat_memory.through_turn ELSE 0 END,
    summary = CASE WHEN chat_memory.through_turn < $2 THEN chat_memory.summary END,
    question = CASE WHEN chat_memory.through_turn < $2 THEN chat_memory.question END,
    messages = CASE WHEN chat_memory.through_turn < $2 THEN chat_memory.messages ELSE 0 END,
    model = CASE WHEN chat_memory.through_turn < $2 THEN chat_memory.model END,
    update_time = excluded.update_time
"""
_DELETE = "DELETE FROM chat_memory WHERE session_id = ANY ($1::uuid[])"

# The sums run over what the index gives, so nothing large is read beyond the page.
_PAGE = """
SELECT * FROM (
    SELECT *, row_number() OVER along AS place, sum(wire_size) OVER along AS bytes,
        count(*) OVER () AS n
    FROM (
        SELECT chat_message.* FROM chat_message
        JOIN chat_session ON chat_session.id = chat_message.session_id
        WHERE chat_session.tenant = $1 AND chat_session.user_id = $2 AND session_id = $3
          AND (turn, sequence) > ($4, $5) AND (turn, sequence) < ($6, $7) AND NOT discarded
        ORDER BY turn {order}, sequence {order} LIMIT $8 + 1
    ) AS found
    WINDOW along AS (ORDER BY turn {order}, sequence {order})
) AS counted
WHERE place <= $8 AND (place = 1 OR bytes <= $9)
ORDER BY turn {order}, sequence {order}
"""
_OLDEST_FIRST, _NEWEST_FIRST = _PAGE.format(order="ASC"), _PAGE.format(order="DESC")


class PostgresMemoryStore:
    """`MemoryStore` over `chat_memory` and `chat_message`; the methods are explained there."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def get(self, identity: Identity, session_id: SessionId) -> Memory:
        async with connection(self._pool) as lent:
            row = await lent.fetchrow(_GET, identity.tenant, identity.user_id, session_id)
        return memory_of(row) or Memory()

    async def open_turn(self, identity: Identity, session_id: SessionId) -> int:
        async with connection(self._pool) as lent:
            turn: int | None = await lent.fetchval(
                _OPEN_TURN, identity.tenant, identity.user_id, session_id
            )
        return LAST if turn is None else turn

    async def put(
        self, identity: Identity, session_id: SessionId, summary: Summary, *, revision: int
    ) -> Memory | None:
        values = put_values(summary, revision)
        async with connection(self._pool) as lent:
            row = await lent.fetchrow(_PUT, *values, identity.tenant, identity.user_id, session_id)
        return memory_of(row)

    async def clear(self, identity: Identity, session_id: SessionId) -> Memory:
        async with connection(self._pool) as lent:
            row = await lent.fetchrow(_CLEAR, identity.tenant, identity.user_id, session_id)
        cleared = memory_of(row)
        if cleared is None:
            raise unknown("session", session_id)
        return cleared

    async def page(
        self,
        identity: Identity,
        session_id: SessionId,
        *,
        after: Place,
        before: Place,
        newest_first: bool,
        most: int,
        max_bytes: int,
    ) -> Listing[Said]:
        statement = _NEWEST_FIRST if newest_first else _OLDEST_FIRST
        key = (identity.tenant, identity.user_id, session_id)
        async with connection(self._pool) as lent:
            rows = await lent.fetch(statement, *key, *after, *before, most, max_bytes)
        said = [Said(Place(row["turn"], row["sequence"]), message_of(row)) for row in rows]
        return Listing(said, bool(rows) and rows[0]["n"] > len(rows))


async def forget_summary(lent: PooledConnection, session_id: SessionId, *, from_turn: int) -> None:
    """Drop the summary, if it covers a turn that is about to change, and any that is under way."""
    await lent.execute(_RESET, session_id, from_turn)


async def delete_memories(lent: PooledConnection, session_ids: Sequence[str]) -> None:
    """Delete what is remembered of sessions whose runs are gone."""
    await lent.execute(_DELETE, session_ids)


def put_values(summary: Summary, revision: int) -> tuple[object, ...]:
    """The parameters $1 to $6 of `PUT`."""
    return (
        summary.through_turn,
        summary.text,
        summary.question,
        summary.messages,
        summary.model,
        revision,
    )


def memory_of(row: Record | None) -> Memory | None:
    """A row of `chat_memory`; None where there is none."""
    if row is None or row["revision"] is None:
        return None
    summary = None
    if row["summary"] is not None:
        summary = Summary(
            text=row["summary"],
            question=row["question"],
            through_turn=row["through_turn"],
            messages=row["messages"],
            model=row["model"],
        )
    return Memory(row["revision"], row["cleared_turn"], summary)
