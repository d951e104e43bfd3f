"""Messages in PostgreSQL: how they are numbered and committed, and how they are read."""

from collections.abc import Sequence

from asyncpg import Record

from services.agent.domain.drafts import wire_size
from services.agent.domain.messages import Draft, Message
from services.agent.domain.models import SessionId
from services.agent.domain.run_models import Run
from services.agent.store.codec import calls_to_json, citations_to_json
from services.agent.store.postgres.rows import message_of, present
from services.common.db import Pool, PooledConnection, connection
from services.common.identity import Identity
from services.common.ids import NewId
from services.common.paging import Listing

_MAX_SEQUENCE = 2**63 - 1

# The lock on the session's row, held until the commit, makes the order of commits that of numbers.
_TAKE_NUMBERS = """
UPDATE chat_session SET
    last_sequence = last_sequence + $2,
    update_time = CASE WHEN $2 > 0 THEN clock_timestamp() ELSE update_time END
WHERE id = $1
RETURNING last_sequence
"""
_INSERT = """
INSERT INTO chat_message (
    session_id, sequence, id, run_id, turn, step, role, text, tool_calls, tool_call_id, tool_name,
    citations, metadata, wire_size, create_time)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, clock_timestamp())
RETURNING *
"""
# The sums run over what the index gives, so nothing large is read beyond the page.
_AFTER = """
SELECT * FROM (
    SELECT *, row_number() OVER up AS place, sum(wire_size) OVER up AS bytes, count(*) OVER () AS n
    FROM (
        SELECT chat_message.* FROM chat_message
        JOIN chat_session ON chat_session.id = chat_message.session_id
        WHERE chat_session.tenant = $1 AND chat_session.user_id = $2
          AND session_id = $3 AND sequence > $4
        ORDER BY sequence LIMIT $5 + 1
    ) AS following
    WINDOW up AS (ORDER BY sequence)
) AS counted
WHERE place <= $5 AND (place = 1 OR bytes <= $6)
ORDER BY sequence
"""
_BEFORE = """
SELECT * FROM (
    SELECT *, row_number() OVER down AS place, sum(wire_size) OVER down AS bytes,
        count(*) OVER () AS n
    FROM (
        SELECT chat_message.* FROM chat_message
        JOIN chat_session ON chat_session.id = chat_message.session_id
        WHERE chat_session.tenant = $1 AND chat_session.user_id = $2
          AND session_id = $3 AND sequence < $4
        ORDER BY sequence DESC LIMIT $5 + 1
    ) AS preceding
    WINDOW down AS (ORDER BY sequence DESC)
) AS counted
WHERE place <= $5 AND (place = 1 OR bytes <= $6)
ORDER BY sequence DESC
"""


class PostgresMessageStore:
    """`MessageStore` over the table `chat_message`; the methods are explained there."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def after(
        self, identity: Identity, session_id: SessionId, sequence: int, *, most: int, max_bytes: int
    ) -> Listing[Message]:
        return await self._read(_AFTER, identity, session_id, sequence, most, max_bytes)

    async def before(
        self,
        identity: Identity,
        session_id: SessionId,
        sequence: int | None,
        *,
        most: int,
        max_bytes: int,
    ) -> Listing[Message]:
        below = _MAX_SEQUENCE if sequence is None else sequence
        return await self._read(_BEFORE, identity, session_id, below, most, max_bytes)

    async def _read(
        self, statement: str, identity: Identity, session_id: SessionId, *bounds: int
    ) -> Listing[Message]:
        async with connection(self._pool) as lent:
            rows = await lent.fetch(
                statement, identity.tenant, identity.user_id, session_id, *bounds
            )
        more = bool(rows) and rows[0]["n"] > len(rows)
        return Listing([message_of(row) for row in rows], more)


async def take_numbers(lent: PooledConnection, session_id: SessionId, count: int) -> int | None:
    """Lock the session for this transaction and take its next numbers; gives the first of them.

    None if there is no such session. With a count of 0 it is only locked.
    """
    last: int | None = await lent.fetchval(_TAKE_NUMBERS, session_id, count)
    return None if last is None else last - count + 1


async def insert_messages(
    lent: PooledConnection,
    drafts: Sequence[Draft],
    *,
    run: Run,
    first: int,
    new_id: NewId,
) -> list[Message]:
    """Commit drafts of a run, as it is now, under the numbers from `first` on.

    The numbers are those that `take_numbers` gave in the same transaction.
    """
    messages = []
    for sequence, draft in enumerate(drafts, start=first):
        key = (run.session_id, sequence, new_id(), run.id, run.turn, run.step_count)
        messages.append(message_of(await _insert(lent, key, draft)))
    return messages


async def _insert(lent: PooledConnection, key: tuple[object, ...], draft: Draft) -> Record:
    return present(
        await lent.fetchrow(
            _INSERT,
            *key,
            draft.role.value,
            draft.text,
            calls_to_json(draft.tool_calls) or None,
            draft.tool_call_id,
            draft.tool_name,
            citations_to_json(draft.citations) or None,
            dict(draft.metadata) or None,
            wire_size(draft),
        )
    )
