"""How the end of a run is committed, be it by its worker or by whoever stops it before."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from asyncpg import Record

from services.agent.domain.chat import Ending
from services.agent.domain.endings import cut_off_word, last_messages
from services.agent.domain.errors import FencedError
from services.agent.domain.messages import Draft, Message, ToolCall
from services.agent.domain.models import SessionId, ToolCallId
from services.agent.domain.run_models import Run, Usage
from services.agent.store.postgres.inserts import SAY, Batch
from services.agent.store.postgres.line import line_up
from services.agent.store.postgres.rows import RUN, run_of
from services.common.db import Pool, PooledConnection, connection, transaction
from services.common.ids import NewId

# A statement that waits for the session's row then reads that row as it is now, but all others as
# they were before. So the end is one statement only where nothing depends on others: no run waits
# behind it, and nothing is to be discarded; with $21 it is refused otherwise. $23 is how many open
# calls the messages answer.
_END = f"""
WITH locked AS MATERIALIZED (
    SELECT id, last_sequence, unfinished FROM chat_session
    WHERE id = $10 AND (unfinished = 1 OR NOT $21)
    FOR NO KEY UPDATE
), held AS (
    UPDATE run SET
        state = $14, stop_reason = $15, error_reason = $16, error_message = $17,
        step_count = step_count + $18, input_tokens = input_tokens + $19,
        output_tokens = output_tokens + $20, cancel_reason = NULL, lease_until = NULL,
        place = NULL, end_time = clock_timestamp()
    FROM locked
    WHERE run.id = $11 AND run.epoch = $12 AND run.end_time IS NULL
      AND (run.lease_until IS NOT NULL) = $13
      AND (run.cancel_reason IS NULL OR run.cancel_reason = $15)
      AND (NOT $21 OR NOT run.discarded)
      AND $23 = (
        SELECT count(*) FROM tool_call
        WHERE tool_call.run_id = run.id AND tool_call.state IN ('planned', 'started'))
    RETURNING {RUN}, locked.last_sequence, locked.unfinished, run.end_time AS moment
), counted AS (
    UPDATE chat_session SET
        last_sequence = held.last_sequence + cardinality($1::uuid[]),
        unfinished = held.unfinished - 1, update_time = held.moment
    FROM held WHERE chat_session.id = held.session_id
), said AS (
    {SAY}
), closed AS (
    UPDATE tool_call SET
        state = CASE tool_call.state WHEN 'started' THEN 'unknown' ELSE 'failed' END,
        error = $22, end_time = held.moment
    FROM held
    WHERE tool_call.run_id = held.id AND tool_call.state IN ('planned', 'started')
)
SELECT * FROM held
"""
_LOCK_SESSION = "SELECT id FROM chat_session WHERE id = $1 FOR NO KEY UPDATE"
_OPEN_CALLS = """
SELECT call_id, tool_name FROM tool_call
WHERE run_id = $1 AND state IN ('planned', 'started')
ORDER BY step, place
"""
_DISCARD = "UPDATE chat_message SET discarded = true WHERE session_id = $1 AND turn = $2"


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


async def finish_run(pool: Pool, end: End, *, new_id: NewId) -> list[Message]:
    """Commit the end of a run; gives its last messages.

    Raises:
        FencedError: the run is not as it has to be, or is to end otherwise.
    """
    async with connection(pool) as lent:
        batch = _last_batch(end, new_id)
        ended = await _end(lent, end, batch, alone=True)
        if ended is not None:
            return batch.committed(ended)
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
    end = replace(end, open_calls=open_calls)
    batch = _last_batch(end, new_id)
    ended = await _end(lent, end, batch, alone=False)
    if ended is None:
        raise FencedError
    if ended["discarded"]:
        await lent.execute(_DISCARD, end.run.session_id, end.run.turn)
    if ended["unfinished"] > 1:
        await line_up(lent, end.run.session_id)
    return run_of(ended), batch.committed(ended)


async def _end(lent: PooledConnection, end: End, batch: Batch, *, alone: bool) -> Record | None:
    ending = end.ending
    return await lent.fetchrow(
        _END,
        *batch.columns,
        end.run.session_id,
        end.run.id,
        end.epoch,
        end.held,
        ending.state.value,
        ending.stop_reason.value,
        ending.error and ending.error.reason,
        ending.error and ending.error.message,
        end.steps,
        end.usage.input_tokens,
        end.usage.output_tokens,
        alone,
        cut_off_word(ending),
        len(end.open_calls),
    )


def _last_batch(end: End, new_id: NewId) -> Batch:
    return Batch.of(last_messages(end.open_calls, end.ending, end.closing), new_id)


def _call_of(row: Record) -> ToolCall:
    return ToolCall(ToolCallId(row["call_id"]), row["tool_name"], "")
