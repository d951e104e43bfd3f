"""What those who watch sessions are told, from PostgreSQL: many sessions with each statement.

What is asked comes as arrays with an entry for each session, tenant and user among them; `place` is
the entry that a row belongs to.
"""

from collections.abc import Sequence
from itertools import groupby

from asyncpg import Record

from services.agent.domain.messages import Message
from services.agent.domain.watch.news import Look, Mark, Pulse, Read
from services.agent.store.postgres.rows import RUN, message_of, run_of
from services.common.db import Pool, connection
from services.common.paging import Listing

_MOST_RUNS = 200

# The runs of a session come from three indexes, so that none of the others is read.
_PULSES = f"""
SELECT asked.place, chat_session.last_sequence, {RUN}
FROM unnest($1::text[], $2::text[], $3::uuid[], $4::bigint[], $5::text[])
    WITH ORDINALITY AS asked (tenant, user_id, session_id, from_turn, open_runs, place)
JOIN chat_session ON chat_session.id = asked.session_id
    AND chat_session.tenant = asked.tenant AND chat_session.user_id = asked.user_id
CROSS JOIN LATERAL (
    SELECT coalesce(asked.from_turn, max(turn), 0) AS from_turn
    FROM run WHERE session_id = asked.session_id
) AS newest
LEFT JOIN LATERAL (
    (
        SELECT * FROM run
        WHERE session_id = asked.session_id AND turn >= newest.from_turn
        ORDER BY turn LIMIT $6 + 1
    )
    UNION ALL
    SELECT * FROM run
    WHERE session_id = asked.session_id AND turn < newest.from_turn AND end_time IS NULL
    UNION ALL
    SELECT * FROM run
    WHERE id = ANY (string_to_array(asked.open_runs, ',')::uuid[])
      AND session_id = asked.session_id AND turn < newest.from_turn AND end_time IS NOT NULL
) AS run ON true
ORDER BY asked.place, run.turn
"""
# The sums run over what the index gives, so nothing large is read beyond the page.
_MESSAGES = """
SELECT asked.place AS asked_place, counted.*
FROM unnest($1::text[], $2::text[], $3::uuid[], $4::bigint[])
    WITH ORDINALITY AS asked (tenant, user_id, session_id, after, place)
JOIN chat_session ON chat_session.id = asked.session_id
    AND chat_session.tenant = asked.tenant AND chat_session.user_id = asked.user_id
CROSS JOIN LATERAL (
    SELECT *, row_number() OVER up AS place, sum(wire_size) OVER up AS bytes, count(*) OVER () AS n
    FROM (
        SELECT * FROM chat_message
        WHERE session_id = asked.session_id AND sequence > asked.after
        ORDER BY sequence LIMIT $5 + 1
    ) AS following
    WINDOW up AS (ORDER BY sequence)
) AS counted
WHERE counted.place <= $5 AND (counted.place = 1 OR counted.bytes <= $6)
ORDER BY asked.place, counted.sequence
"""
_MOVED = """
SELECT asked.place, now.mark
FROM unnest($1::text[], $2::text[], $3::uuid[], $4::text[])
    WITH ORDINALITY AS asked (tenant, user_id, session_id, mark, place)
LEFT JOIN LATERAL (
    SELECT chat_session.last_sequence || ' ' || coalesce((
        SELECT string_agg(
            concat_ws('/', turn, state, cancel_reason, discarded, attempt), ' ' ORDER BY turn)
        FROM run WHERE run.session_id = chat_session.id AND end_time IS NULL
    ), '') AS mark
    FROM chat_session
    WHERE chat_session.id = asked.session_id
      AND chat_session.tenant = asked.tenant AND chat_session.user_id = asked.user_id
) AS now ON true
WHERE now.mark IS DISTINCT FROM asked.mark
"""


class PostgresNewsStore:
    """`NewsStore` over a pool; the methods are explained there."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def pulses(self, looks: Sequence[Look]) -> Sequence[Pulse | None]:
        from_turns = [look.from_turn for look in looks]
        open_runs = [",".join(look.open_runs) for look in looks]
        async with connection(self._pool) as lent:
            rows = await lent.fetch(_PULSES, *_keys(looks), from_turns, open_runs, _MOST_RUNS)
        found = {
            place: _pulse(looks[place - 1], list(group))
            for place, group in groupby(rows, key=lambda row: row["place"])
        }
        return [found.get(place) for place in range(1, len(looks) + 1)]

    async def messages(
        self, reads: Sequence[Read], *, most: int, max_bytes: int
    ) -> Sequence[Listing[Message]]:
        after = [read.after for read in reads]
        async with connection(self._pool) as lent:
            rows = await lent.fetch(_MESSAGES, *_keys(reads), after, most, max_bytes)
        found = {
            place: list(group) for place, group in groupby(rows, key=lambda row: row["asked_place"])
        }
        return [_page(found.get(place, [])) for place in range(1, len(reads) + 1)]

    async def moved(self, marks: Sequence[Mark]) -> Sequence[Mark]:
        known = [each.mark for each in marks]
        async with connection(self._pool) as lent:
            rows = await lent.fetch(_MOVED, *_keys(marks), known)
        return [_moved(marks[row["place"] - 1], row["mark"]) for row in rows]


def _keys(asked: Sequence[Look | Read | Mark]) -> tuple[list[str], list[str], list[str]]:
    """Tenants, users and sessions."""
    return (
        [each.identity.tenant for each in asked],
        [each.identity.user_id for each in asked],
        [each.session_id for each in asked],
    )


def _pulse(look: Look, rows: Sequence[Record]) -> Pulse:
    runs = [run_of(row) for row in rows if row["id"] is not None]
    # What is one too many tells that there is more, and is the last.
    following = sum(1 for run in runs if look.from_turn is None or run.turn >= look.from_turn)
    more = following > _MOST_RUNS
    return Pulse(rows[0]["last_sequence"], runs[:-1] if more else runs, more)


def _page(rows: Sequence[Record]) -> Listing[Message]:
    return Listing([message_of(row) for row in rows], bool(rows) and rows[0]["n"] > len(rows))


def _moved(known: Mark, mark: str | None) -> Mark:
    return Mark(known.identity, known.session_id, mark)
