"""Messages in PostgreSQL, as they are read."""

from services.agent.domain.messages import Message
from services.agent.domain.models import SessionId
from services.agent.store.postgres.rows import message_of
from services.common.db import Pool, connection
from services.common.identity import Identity
from services.common.paging import Listing

_MAX_SEQUENCE = 2**63 - 1

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
