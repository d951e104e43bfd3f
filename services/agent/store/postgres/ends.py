"""How the end of a run is committed, be it by its worker or by whoever stops it before."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from asyncpg import Record

from services.agent.domain.chat import Ending
from services.agent.domain.endings import (
    CALLER_ENDED,
    CANCELLED,
    cut_off_word,
    last_messages,
    notice,
    with_caller,
)
from services.agent.domain.errors import FencedError
from services.agent.domain.messages import Draft, Message, ToolCall
from services.agent.domain.models import SessionId, ToolCallId
from services.agent.domain.run_models import Run, StopReason, Usage
from services.agent.store.postgres.asks import SUB_TOTALS
from services.agent.store.postgres.inserts import (
    FREE,
    LOCKED,
    SAY,
    SKIPPING,
    WAITING,
    Write,
    columns,
)
from services.agent.store.postgres.line import line_up
from services.agent.store.postgres.rows import RUN, present, run_of
from services.agent.store.postgres.usage import ADDED, HELD, SUBS_COUNTED, values
from services.common.db import Pool, PooledConnection, connection, transaction
from services.common.ids import NewId

_END = f"""
WITH held AS MATERIALIZED (
    SELECT * FROM unnest(
        $12::uuid[], $13::uuid[], $14::bigint[], $15::integer[], $16::boolean[], $17::text[],
        $18::text[], $19::text[], $20::text[], $21::integer[], $22::bigint[], $23::bigint[],
        $24::bigint[], $25::bigint[], $26::text[], $27::bigint[], $28::integer[], $29::text[]
    ) WITH ORDINALITY AS held (
        session_id, run_id, epoch, drafts, held, state, stop_reason, error_reason, error_message,
        steps, {HELD}, open_calls, cut_off, number)
), locked AS MATERIALIZED (
    {LOCKED}
), free AS MATERIALIZED (
    {FREE}
), written AS (
    UPDATE run SET
        state = held.state, stop_reason = held.stop_reason, error_reason = held.error_reason,
        error_message = held.error_message, step_count = step_count + held.steps, {ADDED},
        cancel_reason = NULL, lease_until = NULL, place = NULL, end_time = clock_timestamp(),
        {SUBS_COUNTED}
    FROM held
    JOIN locked ON locked.id = held.session_id
    JOIN free ON free.id = held.run_id
    CROSS JOIN LATERAL ({SUB_TOTALS.format(run_id="held.run_id")}) AS subs
    WHERE run.id = held.run_id AND run.epoch = held.epoch AND run.end_time IS NULL
      AND (run.lease_until IS NOT NULL AND run.state <> 'awaiting_approval') = held.held
      AND (run.cancel_reason IS NULL OR run.cancel_reason = held.stop_reason)
      AND (NOT $30 OR NOT run.discarded AND locked.unfinished = 1 AND NOT EXISTS (
        SELECT FROM run AS sub WHERE sub.parent_run_id = held.run_id AND sub.end_time IS NULL))
      AND held.open_calls = (
        SELECT count(*) FROM tool_call
        WHERE tool_call.run_id = run.id AND tool_call.state IN ('planned', 'started'))
    RETURNING {RUN}, locked.last_sequence, locked.unfinished, held.drafts, held.cut_off,
        held.number, run.end_time AS moment
), counted AS (
    UPDATE chat_session SET
        last_sequence = written.last_sequence + written.drafts,
        unfinished = written.unfinished - 1, update_time = written.moment
    FROM written WHERE chat_session.id = written.session_id
), said AS (
    {SAY}
), closed AS (
    UPDATE tool_call SET
        state = CASE tool_call.state WHEN 'started' THEN 'unknown' ELSE 'failed' END,
        error = written.cut_off, end_time = written.moment
    FROM written
    WHERE tool_call.run_id = written.id AND tool_call.state IN ('planned', 'started')
)
SELECT * FROM written
"""
_LOCK_SESSION = "SELECT id FROM chat_session WHERE id = $1 FOR NO KEY UPDATE"
_OPEN_CALLS = """
SELECT call_id, tool_name FROM tool_call
WHERE run_id = $1 AND state IN ('planned', 'started')
ORDER BY step, place
"""
# Those that somebody holds are taken from whoever that is: it cannot go on without the caller.
_SUBS = f"""
SELECT {RUN}, epoch, lease_until IS NOT NULL AS held FROM run
WHERE parent_run_id = $1 AND end_time IS NULL
ORDER BY id FOR UPDATE
"""
_SUB_SESSIONS = """
SELECT session_id FROM run WHERE parent_run_id = $1 AND end_time IS NULL ORDER BY id
"""
_COUNT_SUBS = f"""
UPDATE run SET
    {SUBS_COUNTED}
FROM ({SUB_TOTALS.format(run_id="$1")}) AS subs
WHERE id = $1
RETURNING {RUN}
"""
# All of them have ended by then, so nothing is said in them any more.
_DISCARD = """
WITH RECURSIVE below AS (
    SELECT id, session_id, turn FROM run WHERE id = $1
    UNION ALL
    SELECT sub.id, sub.session_id, sub.turn FROM run AS sub
    JOIN below ON sub.parent_run_id = below.id
), marked AS (
    UPDATE run SET discarded = true FROM below WHERE run.id = below.id AND NOT run.discarded
)
UPDATE chat_message SET discarded = true
FROM below
WHERE chat_message.session_id = below.session_id AND chat_message.turn = below.turn
  AND NOT chat_message.discarded
"""


@dataclass(frozen=True, slots=True)
class End:
    """The end of a run, to be committed.

    Attributes:
        run: which run.
        epoch: what the run's epoch has to be.
        ending: how it ends.
        closing: what is said at the end.
        held: whether a worker has to hold it, or none may.
        usage: what is added to the run's.
        steps: what is added to the run's.
        open_calls: those that seem to have no result.
    """

    run: Run
    epoch: int
    ending: Ending
    closing: Sequence[Draft] = ()
    held: bool = True
    usage: Usage = field(default_factory=Usage)
    steps: int = 0
    open_calls: Sequence[ToolCall] = ()


async def finish_runs(
    pool: Pool, ends: Sequence[End], *, new_id: NewId
) -> Sequence[Sequence[Message] | None]:
    """Commit the ends of some runs in one statement; gives the last messages of each.

    None for those that it leaves out, as they cannot be ended so: a lock would have to be waited
    for, another run waits behind it, its messages are to be discarded, a sub-agent is not done, or
    it is no longer held.
    """
    writes = [_write(end, new_id) for end in ends]
    skipping = _END.replace(WAITING, SKIPPING)
    async with connection(pool) as lent:
        rows = await lent.fetch(skipping, *columns(writes), True)
    written = {row["number"]: row for row in rows}
    return [
        write.committed(written[number]) if number in written else None
        for number, write in enumerate(writes, start=1)
    ]


async def finish_run(pool: Pool, end: End, *, new_id: NewId) -> list[Message]:
    """Commit the end of a run, whatever else that takes; gives its last messages.

    What depends on other rows is left to a transaction that has the session locked from its
    beginning: a statement that has to wait for it reads that row as it is then, but all others as
    they were before.

    Raises:
        FencedError: the run is not as it has to be, or is to end otherwise.
    """
    async with transaction(pool) as lent:
        await lock_session(lent, end.run.session_id)
        _, messages = await end_run(lent, end, new_id=new_id)
        return messages


async def lock_session(lent: PooledConnection, session_id: SessionId) -> None:
    """Keep others from changing a session and its runs until the end of the transaction."""
    await lent.execute(_LOCK_SESSION, session_id)


async def end_run(lent: PooledConnection, end: End, *, new_id: NewId) -> tuple[Run, list[Message]]:
    """End a run in a transaction that has locked the session; gives it with its last messages.

    Raises:
        FencedError: the run is not as it has to be, or is to end otherwise.
    """
    open_calls = [_call_of(row) for row in await lent.fetch(_OPEN_CALLS, end.run.id)]
    write = _write(replace(end, open_calls=open_calls), new_id)
    ended = await lent.fetchrow(_END, *columns([write]), False)
    if ended is None:
        raise FencedError
    if ended["unfinished"] > 1:
        await line_up(lent, end.run.session_id)
    run = await _end_subs(lent, end, new_id=new_id) or run_of(ended)
    if run.discarded:
        await lent.execute(_DISCARD, run.id)
    return run, write.committed(ended)


async def _end_subs(lent: PooledConnection, end: End, *, new_id: NewId) -> Run | None:
    """End the sub-agents' runs that are not done; gives the run with what they used, if any."""
    sessions = await lent.fetch(_SUB_SESSIONS, end.run.id)
    if not sessions:
        return None
    for row in sessions:
        await lock_session(lent, row["session_id"])
    for row in await lent.fetch(_SUBS, end.run.id):
        sub = run_of(row)
        ending = CANCELLED if sub.cancel_reason is StopReason.CANCELLED else with_caller(end.ending)
        closing = [notice(CALLER_ENDED)]
        await end_run(
            lent, End(sub, row["epoch"], ending, closing, held=row["held"]), new_id=new_id
        )
    return run_of(present(await lent.fetchrow(_COUNT_SUBS, end.run.id)))


def _write(end: End, new_id: NewId) -> Write:
    ending = end.ending
    return Write.of(
        end.run,
        end.epoch,
        last_messages(end.open_calls, ending, end.closing),
        end.held,
        ending.state.value,
        ending.stop_reason.value,
        ending.error and ending.error.reason,
        ending.error and ending.error.message,
        end.steps,
        *values(end.usage),
        len(end.open_calls),
        cut_off_word(ending),
        new_id=new_id,
    )


def _call_of(row: Record) -> ToolCall:
    return ToolCall(ToolCallId(row["call_id"]), row["tool_name"], "")
