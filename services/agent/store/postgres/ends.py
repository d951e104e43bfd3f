"""How the end of a run is committed, be it by its worker or by whoever stops it before."""

from collections.abc import Sequence

from services.agent.domain.chat import Ending
from services.agent.domain.endings import last_messages
from services.agent.domain.errors import FencedError
from services.agent.domain.messages import Draft, Message
from services.agent.domain.run_models import Run, Usage
from services.agent.store.postgres.messages import insert_messages, take_numbers
from services.agent.store.postgres.rows import message_of, run_of
from services.common.db import PooledConnection
from services.common.ids import NewId

# From the last message with calls on: all calls before it have their results.
_OPEN_TURN = """
SELECT * FROM chat_message
WHERE session_id = $1 AND turn = $2 AND sequence >= (
    SELECT max(sequence) FROM chat_message
    WHERE session_id = $1 AND turn = $2 AND tool_calls IS NOT NULL)
ORDER BY sequence
"""
# A run that is to be cancelled ends in no other way.
_END = """
UPDATE run SET
    state = $4, stop_reason = $5, error_reason = $6, error_message = $7,
    step_count = step_count + $8, input_tokens = input_tokens + $9,
    output_tokens = output_tokens + $10, cancel_requested = false, lease_until = NULL,
    end_time = clock_timestamp()
WHERE id = $1 AND epoch = $2 AND end_time IS NULL AND (lease_until IS NOT NULL) = $3
  AND (NOT cancel_requested OR $4 = 'cancelled')
RETURNING *
"""


async def end_run(
    lent: PooledConnection,
    run: Run,
    ending: Ending,
    closing: Sequence[Draft],
    *,
    epoch: int,
    held: bool,
    new_id: NewId,
    usage: Usage | None = None,
    steps: int = 0,
) -> tuple[Run, list[Message]]:
    """End a run with its last messages.

    Args:
        lent: in a transaction.
        run: which run.
        ending: how it ends.
        closing: what is said at the end.
        epoch: what the run's epoch has to be.
        held: whether a worker has to hold it, or none may.
        new_id: makes the ids of the messages.
        usage: what is added to the run's.
        steps: what is added to the run's.

    Raises:
        FencedError: the run is not as it has to be, or is to be cancelled.
    """
    turn = [message_of(row) for row in await lent.fetch(_OPEN_TURN, run.session_id, run.turn)]
    drafts = last_messages(turn, ending, closing)
    first = await take_numbers(lent, run.session_id, len(drafts))
    if first is None:
        raise FencedError
    spent = usage or Usage()
    row = await lent.fetchrow(
        _END,
        run.id,
        epoch,
        held,
        ending.state.value,
        ending.stop_reason.value,
        ending.error and ending.error.reason,
        ending.error and ending.error.message,
        steps,
        spent.input_tokens,
        spent.output_tokens,
    )
    if row is None:
        raise FencedError
    ended = run_of(row)
    messages = await insert_messages(lent, drafts, run=ended, first=first, new_id=new_id)
    return ended, messages
