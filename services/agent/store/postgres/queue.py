"""The queue of runs in PostgreSQL: leases on rows, by the database's clock alone."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

import asyncpg
from asyncpg import Record

from services.agent.domain.chat import RunContext
from services.agent.domain.errors import AgentDeletedError, FencedError
from services.agent.domain.models import Agent, AgentId, RunId, ToolCallId
from services.agent.domain.queue import MAX_HISTORY_BYTES, TRUSTING, Caution, Claim, Standing
from services.agent.domain.run_models import StopReason
from services.agent.store.codec import settings_from_json
from services.agent.store.postgres.journal import JournalWriter, PostgresRunJournal
from services.agent.store.postgres.rows import RUN, message_of, run_of
from services.common.db import Pool, connection
from services.common.identity import Identity
from services.common.ids import NewId

# Lapsed leases come first; of suspected runs there are $4 at most. What the agent is like when the
# run is first taken stays with the run.
_CLAIM = f"""
WITH suspected AS MATERIALIZED (
    SELECT id FROM run WHERE lease_until < statement_timestamp() AND crashes >= $3 - 1
    ORDER BY lease_until LIMIT least($2::bigint, $4::bigint)
    FOR UPDATE SKIP LOCKED
), lapsed AS MATERIALIZED (
    SELECT id FROM run WHERE lease_until < statement_timestamp() AND crashes < $3 - 1
    ORDER BY lease_until LIMIT $2 - (SELECT count(*) FROM suspected)
    FOR UPDATE SKIP LOCKED
), next AS MATERIALIZED (
    SELECT id FROM run
    WHERE place IS NOT NULL AND NOT EXISTS (
        SELECT FROM run AS held
        WHERE held.session_id = run.session_id AND held.lease_until IS NOT NULL)
    ORDER BY place, create_time
    LIMIT $2 - (SELECT count(*) FROM suspected) - (SELECT count(*) FROM lapsed)
    FOR UPDATE OF run SKIP LOCKED
)
UPDATE run SET
    epoch = epoch + 1, crashes = crashes + (lease_until IS NOT NULL)::integer, state = 'planning',
    place = NULL, lease_until = clock_timestamp() + $1,
    start_time = coalesce(start_time, clock_timestamp()),
    agent_settings = coalesce(agent_settings, (
        SELECT to_jsonb(agent) FROM agent
        WHERE agent.id = run.agent_id AND agent.tenant = run.tenant
          AND (agent.owner_user_id = run.user_id OR agent.visibility = 'tenant')))
WHERE id = ANY (ARRAY (
    SELECT id FROM suspected UNION ALL SELECT id FROM lapsed UNION ALL SELECT id FROM next))
RETURNING {RUN}, epoch, crashes
"""
_RENEW = """
UPDATE run SET lease_until = clock_timestamp() + $3
FROM unnest($1::uuid[], $2::bigint[]) AS held (id, epoch)
WHERE run.id = held.id AND run.epoch = held.epoch AND run.lease_until IS NOT NULL
RETURNING run.id, run.cancel_reason, EXISTS (
    SELECT FROM agent
    WHERE agent.id = run.agent_id AND agent.tenant = run.tenant
      AND (agent.owner_user_id = run.user_id OR agent.visibility = 'tenant')
) AS has_agent
"""
_STANDING = """
SELECT run.id, run.cancel_reason, EXISTS (
    SELECT FROM agent
    WHERE agent.id = run.agent_id AND agent.tenant = run.tenant
      AND (agent.owner_user_id = run.user_id OR agent.visibility = 'tenant')
) AS has_agent
FROM run JOIN unnest($1::uuid[], $2::bigint[]) AS held (id, epoch)
    ON run.id = held.id AND run.epoch = held.epoch
WHERE run.lease_until IS NOT NULL
"""
# To the head of the line, unless another run of the session has come to stand in it.
_HAND_BACK = """
UPDATE run SET state = 'idle', lease_until = NULL, place = CASE WHEN NOT EXISTS (
    SELECT FROM run AS other WHERE other.session_id = run.session_id AND other.place IS NOT NULL
) THEN coalesce((
    SELECT first.place FROM run AS first
    WHERE first.place IS NOT NULL
    ORDER BY first.place, first.create_time LIMIT 1
), 0) END
WHERE id = $1 AND epoch = $2 AND lease_until IS NOT NULL
"""
_HELD = f"""
SELECT
    {RUN}, run.agent_settings,
    agent.id AS has_agent, agent.owner_user_id, agent.create_time AS agent_create_time,
    agent.update_time AS agent_update_time, clock_timestamp() - run.start_time AS elapsed,
    ARRAY (
        SELECT call_id FROM tool_call WHERE tool_call.run_id = run.id AND state = 'started'
    ) AS started_calls
FROM run LEFT JOIN agent
    ON agent.id = run.agent_id AND agent.tenant = run.tenant
    AND (agent.owner_user_id = run.user_id OR agent.visibility = 'tenant')
WHERE run.id = $1 AND run.epoch = $2 AND run.lease_until IS NOT NULL
"""
# The sums run over what the index gives, so nothing large is read beyond the bounds.
_SAID = """
SELECT * FROM (
    SELECT *, sum(wire_size) OVER (ORDER BY turn DESC, sequence DESC) AS bytes
    FROM (
        SELECT * FROM chat_message WHERE session_id = $1 AND turn < $2 AND NOT discarded
        ORDER BY turn DESC, sequence DESC LIMIT $3
    ) AS preceding
) AS counted
WHERE bytes <= $4
UNION ALL
SELECT *, 0 FROM chat_message WHERE session_id = $1 AND turn = $2 AND NOT discarded
ORDER BY turn, sequence
"""
_TRIES = 3


class PostgresRunQueue:
    """`RunQueue` over the table `run`; the methods are explained there."""

    def __init__(self, pool: Pool, *, new_id: NewId) -> None:
        self._pool = pool
        self._writer = JournalWriter(pool, new_id=new_id)

    def together(self) -> AbstractAsyncContextManager[None]:
        """Commit together what runs write at once, for as long as the block lasts."""
        return self._writer.together()

    async def claim(
        self, *, lease: timedelta, most: int, caution: Caution = TRUSTING
    ) -> Sequence[Claim]:
        async with connection(self._pool) as lent:
            for _ in range(_TRIES):
                try:
                    rows = await lent.fetch(_CLAIM, lease, most, caution.crashes, caution.most)
                except asyncpg.UniqueViolationError:
                    # Two runs of one session stood in line. One at a time, the second is seen to
                    # have to wait.
                    most = 1
                else:
                    return [Claim(run_of(row), row["epoch"], row["crashes"]) for row in rows]
        return []

    async def context(self, claim: Claim) -> RunContext:
        async with connection(self._pool) as lent:
            held = await lent.fetchrow(_HELD, claim.run.id, claim.epoch)
            if held is None:
                raise FencedError
            if held["has_agent"] is None or held["agent_settings"] is None:
                raise AgentDeletedError.of(claim.run.agent_id)
            run, agent = run_of(held), _agent_of(held)
            most = agent.settings.window.messages
            rows = await lent.fetch(_SAID, run.session_id, run.turn, most, MAX_HISTORY_BYTES)
        return RunContext(
            run=run,
            agent=agent,
            identity=Identity(run.tenant, run.user_id),
            history=[message_of(row) for row in rows if row["turn"] < run.turn],
            turn=[message_of(row) for row in rows if row["turn"] == run.turn],
            started_calls=frozenset(ToolCallId(id_) for id_ in held["started_calls"]),
            elapsed=held["elapsed"],
        )

    def journal(self, claim: Claim) -> PostgresRunJournal:
        return PostgresRunJournal(self._writer, claim)

    async def renew(self, claims: Sequence[Claim], *, lease: timedelta) -> Mapping[RunId, Standing]:
        async with connection(self._pool) as lent:
            return _standings(await lent.fetch(_RENEW, *_keys(claims), lease))

    async def standing(self, claims: Sequence[Claim]) -> Mapping[RunId, Standing]:
        async with connection(self._pool) as lent:
            return _standings(await lent.fetch(_STANDING, *_keys(claims)))

    async def hand_back(self, claim: Claim) -> None:
        async with connection(self._pool) as lent:
            await lent.execute(_HAND_BACK, claim.run.id, claim.epoch)


def _agent_of(held: Record) -> Agent:
    """The run's agent, as it was when the run was first taken."""
    return Agent(
        id=AgentId(str(held["agent_id"])),
        tenant=held["tenant"],
        owner_user_id=held["owner_user_id"],
        settings=settings_from_json(held["agent_settings"]),
        create_time=held["agent_create_time"],
        update_time=held["agent_update_time"],
    )


def _keys(claims: Sequence[Claim]) -> tuple[list[str], list[int]]:
    return [claim.run.id for claim in claims], [claim.epoch for claim in claims]


def _standings(rows: Sequence[Record]) -> dict[RunId, Standing]:
    return {
        RunId(str(row["id"])): Standing(
            None if row["cancel_reason"] is None else StopReason(row["cancel_reason"]),
            not row["has_agent"],
        )
        for row in rows
    }
