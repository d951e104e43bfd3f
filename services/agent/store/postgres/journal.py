"""What the worker that holds a run writes: one statement each, fenced by the epoch."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
from asyncpg import Record

from services.agent.domain.approval_models import Question
from services.agent.domain.chat import Ending
from services.agent.domain.errors import FencedError
from services.agent.domain.ledger import outcome_of
from services.agent.domain.memory.models import Memory, Summary
from services.agent.domain.messages import Draft, Message, ToolCall
from services.agent.domain.models import ToolCallId
from services.agent.domain.queue import Claim
from services.agent.domain.run_models import Offered, RunState, Usage
from services.agent.store.codec import offered_to_json
from services.agent.store.postgres.asks import SUB_TOTALS
from services.agent.store.postgres.ends import End, finish_run, finish_runs
from services.agent.store.postgres.inserts import (
    FREE,
    LOCKED,
    NUMBER,
    SAY,
    SKIPPING,
    WAITING,
    Write,
    columns,
)
from services.agent.store.postgres.memories import PUT, memory_of, put_values
from services.agent.store.postgres.together import Together
from services.agent.store.postgres.usage import ADDED, HELD, SUBS_COUNTED, values
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
# As long as the earliest of the questions waits; one that is put again may have been answered.
_PARK = """
WITH parked AS (
    UPDATE run SET
        state = 'awaiting_approval', epoch = epoch + 1, park_time = clock_timestamp(),
        lease_until = (
            SELECT min(CASE
                WHEN approval.state IS NULL THEN clock_timestamp() + $3
                WHEN approval.state = 'pending' THEN approval.expire_time
                ELSE clock_timestamp()
            END)
            FROM unnest($5::text[]) AS question (call_id)
            LEFT JOIN approval ON approval.session_id = run.session_id
                AND approval.turn = run.turn AND approval.step = run.step_count
                AND approval.call_id = question.call_id)
    WHERE id = $1 AND epoch = $2 AND lease_until IS NOT NULL AND cancel_reason IS NULL
    RETURNING id, session_id, tenant, user_id, turn, step_count, park_time
), asked AS (
    INSERT INTO approval (
        id, session_id, turn, step, place, run_id, tenant, user_id, call_id, tool_name, arguments,
        state, create_time, expire_time)
    SELECT
        question.id, parked.session_id, parked.turn, parked.step_count, tool_call.place, parked.id,
        parked.tenant, parked.user_id, question.call_id, tool_call.tool_name, question.arguments,
        'pending', parked.park_time, parked.park_time + $3
    FROM parked
    CROSS JOIN unnest($4::uuid[], $5::text[], $6::text[]) AS question (id, call_id, arguments)
    JOIN tool_call ON tool_call.run_id = parked.id AND tool_call.step = parked.step_count
        AND tool_call.call_id = question.call_id
    ON CONFLICT (session_id, turn, step, place) DO NOTHING
)
SELECT id FROM parked
"""
_ASK = f"""
WITH held AS MATERIALIZED (
    SELECT * FROM unnest(
        $12::uuid[], $13::uuid[], $14::bigint[], $15::integer[], $16::bigint[], $17::bigint[],
        $18::bigint[], $19::bigint[], $20::text[], $21::bigint[]
    ) WITH ORDINALITY AS held (session_id, run_id, epoch, drafts, {HELD}, number)
), locked AS MATERIALIZED (
    {LOCKED}
), free AS MATERIALIZED (
    {FREE}
), written AS (
    UPDATE run SET
        state = 'executing', step_count = step_count + 1, {ADDED}
    FROM held
    JOIN locked ON locked.id = held.session_id
    JOIN free ON free.id = held.run_id
    WHERE run.id = held.run_id AND run.epoch = held.epoch AND run.lease_until IS NOT NULL
      AND run.cancel_reason IS NULL
    RETURNING run.id, run.session_id, run.turn, run.step_count, run.discarded,
        locked.last_sequence, held.drafts, held.number, clock_timestamp() AS moment
), numbered AS (
    {NUMBER}
), said AS (
    {SAY}
), planned AS (
    INSERT INTO tool_call (
        run_id, step, place, call_id, tool_name, state, attempts, plan_time, start_time)
    SELECT
        written.id, written.step_count, call.place, call.id, call.name,
        CASE WHEN call.starts THEN 'started' ELSE 'planned' END, call.starts::integer,
        written.moment, CASE WHEN call.starts THEN written.moment END
    FROM unnest($22::integer[], $23::integer[], $24::text[], $25::text[], $26::boolean[])
        AS call (number, place, id, name, starts)
    JOIN written ON written.number = call.number
)
SELECT * FROM written
"""
_ANSWER = f"""
WITH held AS MATERIALIZED (
    SELECT * FROM unnest($12::uuid[], $13::uuid[], $14::bigint[], $15::integer[], $16::text[])
        WITH ORDINALITY AS held (session_id, run_id, epoch, drafts, state, number)
), locked AS MATERIALIZED (
    {LOCKED}
), free AS MATERIALIZED (
    {FREE}
), written AS (
    UPDATE run SET
        state = coalesce(held.state, run.state), {SUBS_COUNTED}
    FROM held
    JOIN locked ON locked.id = held.session_id
    JOIN free ON free.id = held.run_id
    CROSS JOIN LATERAL ({SUB_TOTALS.format(run_id="held.run_id")}) AS subs
    WHERE run.id = held.run_id AND run.epoch = held.epoch AND run.lease_until IS NOT NULL
      AND run.cancel_reason IS NULL
    RETURNING run.id, run.session_id, run.turn, run.step_count, run.discarded,
        locked.last_sequence, held.drafts, held.number, clock_timestamp() AS moment
), numbered AS (
    {NUMBER}
), said AS (
    {SAY}
), closed AS (
    UPDATE tool_call SET
        state = result.state, error = result.error, end_time = written.moment,
        whole = result.whole, whole_chars = result.whole_chars, whole_source = result.whole_source
    FROM unnest(
        $17::integer[], $18::text[], $19::text[], $20::text[], $21::text[], $22::bigint[],
        $23::text[]
    ) AS result (number, call_id, state, error, whole, whole_chars, whole_source)
    JOIN written ON written.number = result.number
    WHERE tool_call.run_id = written.id AND tool_call.step = written.step_count
      AND tool_call.call_id = result.call_id
)
SELECT * FROM written
"""

# What a summary cost is counted even if somebody else changed the memory meanwhile.
_REMEMBER = f"""
WITH spent ({HELD}) AS (
    VALUES ($9::bigint, $10::bigint, $11::bigint, $12::bigint, $13::text, $14::bigint)
), held AS (
    UPDATE run SET {ADDED.replace("held.", "spent.")}
    FROM spent
    WHERE run.id = $7 AND run.epoch = $8 AND run.lease_until IS NOT NULL
      AND run.cancel_reason IS NULL
    RETURNING run.session_id
), put AS (
    {PUT}
)
SELECT put.* FROM held LEFT JOIN put ON put.session_id = held.session_id
"""


class _Shared:
    """A statement that writes of several runs share."""

    def __init__(self, pool: Pool, statement: str, *, name: str, part_width: int) -> None:
        self._pool = pool
        self._statement = statement
        self._part_width = part_width
        self.together = Together(name, self._write_together)

    async def write(self, write: Write) -> Record:
        """The row of what is committed now.

        Raises:
            FencedError: the run is no longer the writer's.
        """
        written = await self.together.call(write)
        if written is None:
            written = await self._write_alone(write)
        return written

    async def _write_together(self, writes: Sequence[Write]) -> Sequence[Record | None]:
        skipping = self._statement.replace(WAITING, SKIPPING)
        try:
            async with connection(self._pool) as lent:
                rows = await lent.fetch(skipping, *columns(writes, part_width=self._part_width))
        except asyncpg.PostgresError:
            # One of them cannot be written; alone, it meets its error alone.
            return [None] * len(writes)
        written = {row["number"]: row for row in rows}
        return [written.get(number) for number in range(1, len(writes) + 1)]

    async def _write_alone(self, write: Write) -> Record:
        async with connection(self._pool) as lent:
            written = await lent.fetchrow(
                self._statement, *columns([write], part_width=self._part_width)
            )
        if written is None:
            raise FencedError
        return written


class JournalWriter:
    """The writes of all runs that a worker holds; those that come at once are committed together.

    A write that cannot be made at once, as somebody else holds a lock on its session or its run,
    or as the run is lost, is made alone: only then it waits, or is refused.

    Attributes:
        pool: the database.
        new_id: gives messages their ids.
        asks: writes messages with calls.
        answers: writes results.
    """

    def __init__(self, pool: Pool, *, new_id: NewId) -> None:
        self.pool = pool
        self.new_id = new_id
        self.asks = _Shared(pool, _ASK, name="write questions", part_width=4)
        self.answers = _Shared(pool, _ANSWER, name="write results", part_width=6)
        self._ends = Together("write ends", self._end_together)

    @asynccontextmanager
    async def together(self) -> AsyncIterator[None]:
        """Commit together what comes at once, for as long as the block lasts."""
        async with self.asks.together.open(), self.answers.together.open(), self._ends.open():
            yield

    async def end(self, end: End) -> Sequence[Message]:
        """The last messages of a run that has ended now.

        Raises:
            FencedError: the run is no longer the writer's, or is to end otherwise.
        """
        messages = await self._ends.call(end)
        if messages is None:
            return await finish_run(self.pool, end, new_id=self.new_id)
        return messages

    async def _end_together(self, ends: Sequence[End]) -> Sequence[Sequence[Message] | None]:
        try:
            return await finish_runs(self.pool, ends, new_id=self.new_id)
        except asyncpg.PostgresError:
            return [None] * len(ends)


class PostgresRunJournal:
    """`RunJournal` over `run`, `chat_message` and `tool_call`; the methods are explained there.

    It remembers which calls have no result, so that an end that comes amid them is one statement
    too; where it is wrong, after a recovery say, the end looks for itself.
    """

    def __init__(self, writer: JournalWriter, claim: Claim) -> None:
        self._writer = writer
        self._run = claim.run
        self._epoch = claim.epoch
        self._open: list[ToolCall] = []

    async def set_state(self, state: RunState, *, offered: Offered | None = None) -> None:
        told = None if offered is None else offered_to_json(offered)
        await self._change(_SET_STATE, state.value, told)

    async def append_assistant(
        self, draft: Draft, *, usage: Usage, starting: Collection[int] = ()
    ) -> Message:
        self._open = list(draft.tool_calls)
        write = Write.of(
            self._run,
            self._epoch,
            [draft],
            *values(usage),
            new_id=self._writer.new_id,
            parts=[
                (place, call.id, call.name, place in starting)
                for place, call in enumerate(draft.tool_calls)
            ],
        )
        [message] = write.committed(await self._writer.asks.write(write))
        return message

    async def start_tool_calls(self, call_ids: Sequence[ToolCallId]) -> None:
        await self._change(_START_CALLS, call_ids)

    async def append_tool_results(
        self, drafts: Sequence[Draft], *, then: RunState | None = None
    ) -> Sequence[Message]:
        write = Write.of(
            self._run,
            self._epoch,
            drafts,
            None if then is None else then.value,
            new_id=self._writer.new_id,
            parts=[_closed(draft) for draft in drafts],
        )
        messages = write.committed(await self._writer.answers.write(write))
        answered = {draft.tool_call_id for draft in drafts}
        self._open = [call for call in self._open if call.id not in answered]
        return messages

    async def park(self, questions: Sequence[Question], *, within: timedelta) -> None:
        ids = [self._writer.new_id() for _ in questions]
        calls = [each.tool_call_id for each in questions]
        arguments = [each.arguments_json for each in questions]
        await self._change(_PARK, within, ids, calls, arguments)

    async def remember(self, summary: Summary, *, revision: int, usage: Usage) -> Memory | None:
        put, run = put_values(summary, revision), (self._run.id, self._epoch)
        async with connection(self._writer.pool) as lent:
            row = await lent.fetchrow(_REMEMBER, *put, *run, *values(usage))
        if row is None:
            raise FencedError
        return memory_of(row)

    async def finish(
        self,
        ending: Ending,
        closing: Sequence[Draft] = (),
        *,
        usage: Usage | None = None,
        steps: int = 0,
    ) -> Sequence[Message]:
        end = End(
            self._run,
            self._epoch,
            ending,
            closing,
            usage=usage or Usage(),
            steps=steps,
            open_calls=self._open,
        )
        return await self._writer.end(end)

    async def _change(self, statement: str, *values: object) -> None:
        async with connection(self._writer.pool) as lent:
            if await lent.fetchval(statement, self._run.id, self._epoch, *values) is None:
                raise FencedError


def _closed(result: Draft) -> tuple[object, ...]:
    state, error = outcome_of(result)
    whole = result.whole
    kept = (None, None, None) if whole is None else (whole.text, whole.full_chars, whole.source)
    return result.tool_call_id, state.value, error, *kept
