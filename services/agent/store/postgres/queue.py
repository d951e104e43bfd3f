"""The queue of runs in PostgreSQL: leases on rows, by the database's clock alone."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
from asyncpg import Record

from services.agent.domain.chat import RunContext
from services.agent.domain.models import RunId
from services.agent.domain.queue import TRUSTING, Caution, Claim, Standing
from services.agent.domain.run_models import StopReason
from services.agent.domain.sub_runs import Answered, Task
from services.agent.store.postgres.asks import ask
from services.agent.store.postgres.contexts import ContextReader
from services.agent.store.postgres.journal import JournalWriter, PostgresRunJournal
from services.agent.store.postgres.line import HEAD
from services.agent.store.postgres.rows import RUN, run_of
from services.common.db import Pool, connection, transaction
from services.common.ids import NewId

# Lapsed leases come first, those of runs that waited for a person included, which is no crash, but
# for those of sub-agents, which whoever takes the run that asked for them takes, too; of suspected
# runs there are $4 at most. What the agent is like when the run is first taken stays with the run.
# OFFSET 0 keeps the planner from reading all runs that are held, to join those in line with them.
_CLAIM = f"""
WITH suspected AS MATERIALIZED (
    SELECT id FROM run
    WHERE num_nonnulls(lease_until) = 1 AND lease_until < statement_timestamp()
      AND crashes >= $3 - 1 AND parent_run_id IS NULL
    ORDER BY lease_until LIMIT least($2::bigint, $4::bigint)
    FOR UPDATE SKIP LOCKED
), lapsed AS MATERIALIZED (
    SELECT id FROM run
    WHERE num_nonnulls(lease_until) = 1 AND lease_until < statement_timestamp()
      AND crashes < $3 - 1 AND parent_run_id IS NULL
    ORDER BY lease_until LIMIT $2 - (SELECT count(*) FROM suspected)
    FOR UPDATE SKIP LOCKED
), next AS MATERIALIZED (
    SELECT id FROM run
    WHERE place IS NOT NULL AND NOT EXISTS (
        SELECT FROM run AS held
        WHERE held.session_id = run.session_id AND num_nulls(held.lease_until) = 0 OFFSET 0)
    ORDER BY place, create_time
    LIMIT $2 - (SELECT count(*) FROM suspected) - (SELECT count(*) FROM lapsed)
    FOR UPDATE OF run SKIP LOCKED
)
UPDATE run SET
    epoch = epoch + 1, state = 'planning',
    crashes = crashes + (lease_until IS NOT NULL AND state <> 'awaiting_approval')::integer,
    waited = waited + coalesce(clock_timestamp() - park_time, '0'), park_time = NULL,
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
# A run is older than those of the sub-agents it asks, and locked before them, as everywhere.
_RENEW = """
WITH held AS MATERIALIZED (
    SELECT run.id, held.epoch
    FROM unnest($1::uuid[], $2::bigint[]) AS held (id, epoch) JOIN run USING (id)
    ORDER BY run.id FOR NO KEY UPDATE OF run
)
UPDATE run SET lease_until = clock_timestamp() + $3
FROM held
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
_HAND_BACK = f"""
UPDATE run SET state = 'idle', lease_until = NULL, place = {HEAD}
WHERE id = $1 AND epoch = $2 AND lease_until IS NOT NULL
"""
_TRIES = 3


class PostgresRunQueue:
    """`RunQueue` over the table `run`; the methods are explained there."""

    def __init__(self, pool: Pool, *, new_id: NewId) -> None:
        self._pool = pool
        self._reader = ContextReader(pool)
        self._writer = JournalWriter(pool, new_id=new_id)
        self._new_id = new_id

    @asynccontextmanager
    async def together(self) -> AsyncIterator[None]:
        """Read and commit together what runs want at once, for as long as the block lasts."""
        async with self._reader.together(), self._writer.together():
            yield

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
        return await self._reader.read(claim)

    def journal(self, claim: Claim) -> PostgresRunJournal:
        return PostgresRunJournal(self._writer, claim)

    async def ask(self, claim: Claim, task: Task, *, lease: timedelta) -> Claim | Answered:
        async with transaction(self._pool) as lent:
            return await ask(lent, claim, task, lease=lease, new_id=self._new_id)

    async def renew(self, claims: Sequence[Claim], *, lease: timedelta) -> Mapping[RunId, Standing]:
        async with connection(self._pool) as lent:
            return _standings(await lent.fetch(_RENEW, *_keys(claims), lease))

    async def standing(self, claims: Sequence[Claim]) -> Mapping[RunId, Standing]:
        async with connection(self._pool) as lent:
            return _standings(await lent.fetch(_STANDING, *_keys(claims)))

    async def hand_back(self, claim: Claim) -> None:
        async with connection(self._pool) as lent:
            await lent.execute(_HAND_BACK, claim.run.id, claim.epoch)


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
