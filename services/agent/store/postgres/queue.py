"""The queue of runs in PostgreSQL: leases on rows, by the database's clock alone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

import asyncpg
from asyncpg import Record

from services.agent.domain.chat import RunContext
from services.agent.domain.errors import AgentDeletedError, FencedError
from services.agent.domain.messages import Message
from services.agent.domain.models import Agent, RunId, ToolCallId
from services.agent.domain.queue import MAX_HISTORY_BYTES, Claim, Standing
from services.agent.domain.run_models import Run
from services.agent.store.codec import settings_from_json, settings_to_json
from services.agent.store.postgres.journal import PostgresRunJournal
from services.agent.store.postgres.rows import agent_of, message_of, run_of
from services.common.db import Pool, PooledConnection, connection, transaction
from services.common.identity import Identity
from services.common.ids import NewId

_CLAIM_LAPSED = """
WITH lapsed AS MATERIALIZED (
    SELECT id FROM run WHERE lease_until < statement_timestamp()
    ORDER BY lease_until LIMIT $2
    FOR UPDATE SKIP LOCKED
)
UPDATE run SET
    epoch = epoch + 1, crashes = crashes + 1, state = 'planning',
    lease_until = clock_timestamp() + $1
FROM lapsed WHERE run.id = lapsed.id
RETURNING run.*
"""
_CLAIM_WAITING = """
WITH next AS MATERIALIZED (
    SELECT id FROM run
    WHERE state = 'idle' AND NOT EXISTS (
        SELECT FROM run AS earlier
        WHERE earlier.session_id = run.session_id AND earlier.end_time IS NULL
          AND earlier.turn < run.turn)
    ORDER BY create_time LIMIT $2
    FOR UPDATE SKIP LOCKED
)
UPDATE run SET
    epoch = epoch + 1, state = 'planning', lease_until = clock_timestamp() + $1,
    start_time = coalesce(start_time, clock_timestamp())
FROM next WHERE run.id = next.id
RETURNING run.*
"""
_RENEW = """
UPDATE run SET lease_until = clock_timestamp() + $3
FROM unnest($1::uuid[], $2::bigint[]) AS held (id, epoch)
WHERE run.id = held.id AND run.epoch = held.epoch AND run.lease_until IS NOT NULL
RETURNING run.id, run.cancel_requested, EXISTS (
    SELECT FROM agent
    WHERE agent.id = run.agent_id AND agent.tenant = run.tenant
      AND (agent.owner_user_id = run.user_id OR agent.visibility = 'tenant')
) AS has_agent
"""
_STANDING = """
SELECT run.id, run.cancel_requested, EXISTS (
    SELECT FROM agent
    WHERE agent.id = run.agent_id AND agent.tenant = run.tenant
      AND (agent.owner_user_id = run.user_id OR agent.visibility = 'tenant')
) AS has_agent
FROM run JOIN unnest($1::uuid[], $2::bigint[]) AS held (id, epoch)
    ON run.id = held.id AND run.epoch = held.epoch
WHERE run.lease_until IS NOT NULL
"""
_HAND_BACK = """
UPDATE run SET state = 'idle', lease_until = NULL
WHERE id = $1 AND epoch = $2 AND lease_until IS NOT NULL
"""
_AGENT = """
SELECT agent.* FROM agent
WHERE tenant = $1 AND (owner_user_id = $2 OR visibility = 'tenant') AND id = $3
"""
# What the agent was like when the run was first taken stays with the run.
_HELD = """
UPDATE run SET agent_settings = coalesce(agent_settings, $3)
WHERE id = $1 AND epoch = $2 AND lease_until IS NOT NULL
RETURNING *
"""
_TURN = "SELECT * FROM chat_message WHERE session_id = $1 AND turn = $2 ORDER BY sequence"
# The sums run over what the index gives, so nothing large is read beyond the bounds.
_HISTORY = """
SELECT * FROM (
    SELECT *, sum(wire_size) OVER (ORDER BY turn DESC, sequence DESC) AS bytes
    FROM (
        SELECT * FROM chat_message WHERE session_id = $1 AND turn < $2
        ORDER BY turn DESC, sequence DESC LIMIT $3
    ) AS preceding
) AS counted
WHERE bytes <= $4
ORDER BY turn, sequence
"""


class PostgresRunQueue:
    """`RunQueue` over the table `run`; the methods are explained there."""

    def __init__(self, pool: Pool, *, new_id: NewId) -> None:
        self._pool = pool
        self._new_id = new_id

    async def claim(self, *, lease: timedelta, most: int) -> Sequence[Claim]:
        async with connection(self._pool) as lent:
            claims = [_claim_of(row) for row in await lent.fetch(_CLAIM_LAPSED, lease, most)]
            if len(claims) < most:
                claims += await _claim_waiting(lent, lease, most - len(claims))
            return claims

    async def context(self, claim: Claim) -> RunContext:
        run = claim.run
        async with transaction(self._pool) as lent:
            row = await lent.fetchrow(_AGENT, run.tenant, run.user_id, run.agent_id)
            if row is None:
                raise AgentDeletedError.of(run.agent_id)
            agent = agent_of(row)
            settings = settings_to_json(agent.settings)
            held = await lent.fetchrow(_HELD, run.id, claim.epoch, settings)
            if held is None:
                raise FencedError
            return await _context(lent, held, agent)

    def journal(self, claim: Claim) -> PostgresRunJournal:
        return PostgresRunJournal(self._pool, claim, new_id=self._new_id)

    async def renew(self, claims: Sequence[Claim], *, lease: timedelta) -> Mapping[RunId, Standing]:
        async with connection(self._pool) as lent:
            return _standings(await lent.fetch(_RENEW, *_keys(claims), lease))

    async def standing(self, claims: Sequence[Claim]) -> Mapping[RunId, Standing]:
        async with connection(self._pool) as lent:
            return _standings(await lent.fetch(_STANDING, *_keys(claims)))

    async def hand_back(self, claim: Claim) -> None:
        async with connection(self._pool) as lent:
            await lent.execute(_HAND_BACK, claim.run.id, claim.epoch)


async def _claim_waiting(lent: PooledConnection, lease: timedelta, most: int) -> list[Claim]:
    try:
        return [_claim_of(row) for row in await lent.fetch(_CLAIM_WAITING, lease, most)]
    except asyncpg.UniqueViolationError:
        # Another worker took a run of the same session at the same moment.
        return []


async def _context(lent: PooledConnection, held: Record, agent: Agent) -> RunContext:
    run = run_of(held)
    settings = settings_from_json(held["agent_settings"])
    return RunContext(
        run=run,
        agent=replace(agent, settings=settings),
        identity=Identity(run.tenant, run.user_id),
        history=await _history(lent, run, most=settings.window.messages),
        turn=[message_of(row) for row in await lent.fetch(_TURN, run.session_id, run.turn)],
        started_calls=frozenset(ToolCallId(id_) for id_ in held["started_calls"]),
    )


async def _history(lent: PooledConnection, run: Run, *, most: int) -> list[Message]:
    rows = await lent.fetch(_HISTORY, run.session_id, run.turn, most, MAX_HISTORY_BYTES)
    return [message_of(row) for row in rows]


def _claim_of(row: Record) -> Claim:
    return Claim(run_of(row), row["epoch"], row["crashes"])


def _keys(claims: Sequence[Claim]) -> tuple[list[str], list[int]]:
    return [claim.run.id for claim in claims], [claim.epoch for claim in claims]


def _standings(rows: Sequence[Record]) -> dict[RunId, Standing]:
    return {
        RunId(str(row["id"])): Standing(row["cancel_requested"], not row["has_agent"])
        for row in rows
    }
