"""What the worker that holds a run writes: one statement each, fenced by the epoch."""

from collections.abc import Collection, Sequence

from services.agent.domain.chat import Ending
from services.agent.domain.errors import FencedError
from services.agent.domain.ledger import outcome_of
from services.agent.domain.messages import Draft, Message, ToolCall
from services.agent.domain.models import ToolCallId
from services.agent.domain.queue import Claim
from services.agent.domain.run_models import Offered, RunState, Usage
from services.agent.store.codec import offered_to_json
from services.agent.store.postgres.ends import End, finish_run
from services.agent.store.postgres.inserts import NUMBER, SAY, Batch
from services.common.db import Pool, connection
from services.common.ids import NewId

# Once it was asked to stop, the run takes nothing but its end.
_SET_STATE = """
UPDATE run SET state = $3, offered = coalesce($4, offered)
WHERE id = $1 AND epoch = $2 AND lease_until IS NOT NULL AND cancel_reason IS NULL
RETURNING id
"""
_START_CALLS = """
WITH held AS (
    UPDATE run SET state = 'executing'
    WHERE id = $1 AND epoch = $2 AND lease_until IS NOT NULL AND cancel_reason IS NULL
    RETURNING id, step_count
), started AS (
    UPDATE tool_call SET
        state = 'started', attempts = attempts + 1, start_time = clock_timestamp()
    FROM held
    WHERE tool_call.run_id = held.id AND tool_call.step = held.step_count
      AND tool_call.call_id = ANY ($3) AND tool_call.state IN ('planned', 'started')
)
SELECT id FROM held
"""
_ASK = f"""
WITH locked AS MATERIALIZED (
    SELECT id, last_sequence FROM chat_session WHERE id = $10 FOR NO KEY UPDATE
), held AS (
    UPDATE run SET
        state = 'executing', step_count = step_count + 1, input_tokens = input_tokens + $13,
        output_tokens = output_tokens + $14
    FROM locked
    WHERE run.id = $11 AND run.epoch = $12 AND run.lease_until IS NOT NULL
      AND run.cancel_reason IS NULL
    RETURNING run.id, run.session_id, run.turn, run.step_count, run.discarded,
        locked.last_sequence, clock_timestamp() AS moment
), numbered AS (
    {NUMBER}
), said AS (
    {SAY}
), planned AS (
    INSERT INTO tool_call (
        run_id, step, place, call_id, tool_name, state, attempts, plan_time, start_time)
    SELECT
        held.id, held.step_count, call.place - 1, call.id, call.name,
        CASE WHEN call.starts THEN 'started' ELSE 'planned' END, call.starts::integer,
        held.moment, CASE WHEN call.starts THEN held.moment END
    FROM held, unnest($15::text[], $16::text[], $17::boolean[])
        WITH ORDINALITY AS call (id, name, starts, place)
)
SELECT * FROM held
"""
_ANSWER = f"""
WITH locked AS MATERIALIZED (
    SELECT id, last_sequence FROM chat_session WHERE id = $10 FOR NO KEY UPDATE
), held AS (
    UPDATE run SET state = coalesce($13, state)
    FROM locked
    WHERE run.id = $11 AND run.epoch = $12 AND run.lease_until IS NOT NULL
      AND run.cancel_reason IS NULL
    RETURNING run.id, run.session_id, run.turn, run.step_count, run.discarded,
        locked.last_sequence, clock_timestamp() AS moment
), numbered AS (
    {NUMBER}
), said AS (
    {SAY}
), closed AS (
    UPDATE tool_call SET state = result.state, error = result.error, end_time = held.moment
    FROM held, unnest($5::text[], $14::text[], $15::text[]) AS result (call_id, state, error)
    WHERE tool_call.run_id = held.id AND tool_call.step = held.step_count
      AND tool_call.call_id = result.call_id
)
SELECT * FROM held
"""


class PostgresRunJournal:
    """`RunJournal` over `run`, `chat_message` and `tool_call`; the methods are explained there.

    It remembers which calls have no result, so that an end that comes amid them is one statement
    too; where it is wrong, after a recovery say, the end looks for itself.
    """

    def __init__(self, pool: Pool, claim: Claim, *, new_id: NewId) -> None:
        self._pool = pool
        self._claim = claim
        self._key = (claim.run.id, claim.epoch)
        self._new_id = new_id
        self._open: list[ToolCall] = []

    async def set_state(self, state: RunState, *, offered: Offered | None = None) -> None:
        async with connection(self._pool) as lent:
            told = None if offered is None else offered_to_json(offered)
            if await lent.fetchval(_SET_STATE, *self._key, state.value, told) is None:
                raise FencedError

    async def append_assistant(
        self, draft: Draft, *, usage: Usage, starting: Collection[int] = ()
    ) -> Message:
        calls = draft.tool_calls
        self._open = list(calls)
        [message] = await self._append(
            _ASK,
            [draft],
            usage.input_tokens,
            usage.output_tokens,
            [call.id for call in calls],
            [call.name for call in calls],
            [place in starting for place in range(len(calls))],
        )
        return message

    async def start_tool_calls(self, call_ids: Sequence[ToolCallId]) -> None:
        async with connection(self._pool) as lent:
            if await lent.fetchval(_START_CALLS, *self._key, call_ids) is None:
                raise FencedError

    async def append_tool_results(
        self, drafts: Sequence[Draft], *, then: RunState | None = None
    ) -> Sequence[Message]:
        outcomes = [outcome_of(draft) for draft in drafts]
        messages = await self._append(
            _ANSWER,
            drafts,
            None if then is None else then.value,
            [state.value for state, _ in outcomes],
            [error for _, error in outcomes],
        )
        answered = {draft.tool_call_id for draft in drafts}
        self._open = [call for call in self._open if call.id not in answered]
        return messages

    async def finish(
        self,
        ending: Ending,
        closing: Sequence[Draft] = (),
        *,
        usage: Usage | None = None,
        steps: int = 0,
    ) -> Sequence[Message]:
        run, epoch = self._claim.run, self._claim.epoch
        end = End(
            run,
            epoch,
            ending,
            closing,
            usage=usage or Usage(),
            steps=steps,
            open_calls=self._open,
        )
        return await finish_run(self._pool, end, new_id=self._new_id)

    async def _append(
        self, statement: str, drafts: Sequence[Draft], *more: object
    ) -> list[Message]:
        batch = Batch.of(drafts, self._new_id)
        async with connection(self._pool) as lent:
            held = await lent.fetchrow(
                statement, *batch.columns, self._claim.run.session_id, *self._key, *more
            )
        if held is None:
            raise FencedError
        return batch.committed(held)
