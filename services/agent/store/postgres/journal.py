"""What the worker that holds a run writes: each time one transaction, fenced by the epoch.

The session's row is locked first, then the run's, as everywhere.
"""

from collections.abc import Sequence

from services.agent.domain.chat import Ending
from services.agent.domain.errors import FencedError
from services.agent.domain.messages import Draft, Message
from services.agent.domain.models import ToolCallId
from services.agent.domain.queue import Claim
from services.agent.domain.run_models import Offered, RunState, Usage
from services.agent.store.codec import offered_to_json
from services.agent.store.postgres.ends import end_run
from services.agent.store.postgres.messages import insert_messages, take_numbers
from services.agent.store.postgres.rows import run_of
from services.common.db import Pool, connection, transaction
from services.common.ids import NewId

# Once a cancel was asked for, the run takes nothing but its end.
_SET_STATE = """
UPDATE run SET state = $3, offered = coalesce($4, offered)
WHERE id = $1 AND epoch = $2 AND lease_until IS NOT NULL AND NOT cancel_requested
RETURNING id
"""
_START_CALLS = """
UPDATE run SET started_calls = started_calls || $3::text[]
WHERE id = $1 AND epoch = $2 AND lease_until IS NOT NULL AND NOT cancel_requested
RETURNING id
"""
_ADVANCE = """
UPDATE run SET
    step_count = step_count + $3, input_tokens = input_tokens + $4,
    output_tokens = output_tokens + $5,
    started_calls = CASE WHEN $3 > 0 THEN '{}' ELSE started_calls END
WHERE id = $1 AND epoch = $2 AND lease_until IS NOT NULL AND NOT cancel_requested
RETURNING *
"""


class PostgresRunJournal:
    """`RunJournal` over `run` and `chat_message`; the methods are explained there."""

    def __init__(self, pool: Pool, claim: Claim, *, new_id: NewId) -> None:
        self._pool = pool
        self._run = claim.run
        self._key = (claim.run.id, claim.epoch)
        self._new_id = new_id

    async def set_state(self, state: RunState, *, offered: Offered | None = None) -> None:
        async with connection(self._pool) as lent:
            told = None if offered is None else offered_to_json(offered)
            if await lent.fetchval(_SET_STATE, *self._key, state.value, told) is None:
                raise FencedError

    async def append_assistant(self, draft: Draft, *, usage: Usage) -> Message:
        return await self._append(draft, steps=1, usage=usage)

    async def start_tool_calls(self, call_ids: Sequence[ToolCallId]) -> None:
        async with connection(self._pool) as lent:
            if await lent.fetchval(_START_CALLS, *self._key, call_ids) is None:
                raise FencedError

    async def append_tool_result(self, draft: Draft) -> Message:
        return await self._append(draft, steps=0, usage=Usage())

    async def finish(
        self,
        ending: Ending,
        closing: Sequence[Draft] = (),
        *,
        usage: Usage | None = None,
        steps: int = 0,
    ) -> Sequence[Message]:
        async with transaction(self._pool) as lent:
            _, messages = await end_run(
                lent,
                self._run,
                ending,
                closing,
                epoch=self._key[1],
                held=True,
                new_id=self._new_id,
                usage=usage,
                steps=steps,
            )
            return messages

    async def _append(self, draft: Draft, *, steps: int, usage: Usage) -> Message:
        async with transaction(self._pool) as lent:
            first = await take_numbers(lent, self._run.session_id, 1)
            spent = (steps, usage.input_tokens, usage.output_tokens)
            row = await lent.fetchrow(_ADVANCE, *self._key, *spent)
            if first is None or row is None:
                raise FencedError
            [message] = await insert_messages(
                lent, [draft], run=run_of(row), first=first, new_id=self._new_id
            )
            return message
