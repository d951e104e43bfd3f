"""What runs begin with, or go on with: read for many runs with each statement.

What is asked comes as arrays with an entry for each run; `place` is the entry a row belongs to.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from itertools import groupby

import asyncpg
from asyncpg import Record

from services.agent.domain.approval_models import Approval
from services.agent.domain.chat import RunContext
from services.agent.domain.errors import AgentDeletedError, FencedError
from services.agent.domain.models import Agent, AgentId, RunId, ToolCallId
from services.agent.domain.queue import MAX_HISTORY_BYTES, Claim
from services.agent.store.codec import settings_from_json, window_from_json
from services.agent.store.postgres.rows import APPROVAL, RUN, approval_of, message_of, run_of
from services.agent.store.postgres.together import Together
from services.common.db import Pool, PooledConnection, connection
from services.common.identity import Identity

_HELD = f"""
SELECT
    asked.place, run.lease_until IS NOT NULL AS held, {RUN}, run.agent_settings,
    agent.id AS has_agent, agent.owner_user_id, agent.create_time AS agent_create_time,
    agent.update_time AS agent_update_time,
    clock_timestamp() - run.start_time - run.waited AS elapsed,
    EXISTS (
        SELECT FROM approval
        WHERE session_id = run.session_id AND turn = run.turn AND step = run.step_count
    ) AS has_approvals,
    (SELECT time_zone FROM chat_session WHERE chat_session.id = run.session_id)
        AS session_time_zone,
    ARRAY (
        SELECT call_id FROM tool_call WHERE tool_call.run_id = run.id AND state = 'started'
    ) AS started_calls
FROM unnest($1::uuid[], $2::bigint[]) WITH ORDINALITY AS asked (id, epoch, place)
JOIN run ON run.id = asked.id AND run.epoch = asked.epoch
LEFT JOIN agent
    ON agent.id = run.agent_id AND agent.tenant = run.tenant
    AND (agent.owner_user_id = run.user_id OR agent.visibility = 'tenant')
"""
_APPROVALS = f"""
SELECT {APPROVAL} FROM approval
JOIN unnest($1::uuid[], $2::bigint[], $3::integer[]) AS asked (session_id, turn, step)
    USING (session_id, turn, step)
"""
# The sums run over what the index gives, so nothing large is read beyond the bounds. A run whose
# messages take more than $5 bytes in all is given none.
_SAID = """
SELECT * FROM (
    SELECT asked.place, said.*, sum(wire_size) OVER (PARTITION BY asked.place) AS whole
    FROM unnest($1::uuid[], $2::bigint[], $3::bigint[])
        WITH ORDINALITY AS asked (session_id, turn, most, place)
    CROSS JOIN LATERAL (
        SELECT * FROM (
            SELECT *, sum(wire_size) OVER (ORDER BY turn DESC, sequence DESC) AS bytes
            FROM (
                SELECT * FROM chat_message
                WHERE session_id = asked.session_id AND turn < asked.turn AND NOT discarded
                  AND turn > coalesce((
                    SELECT cleared_turn FROM chat_memory WHERE session_id = asked.session_id), 0)
                ORDER BY turn DESC, sequence DESC LIMIT asked.most
            ) AS preceding
        ) AS counted
        WHERE bytes <= $4
        UNION ALL
        SELECT *, 0 FROM chat_message
        WHERE session_id = asked.session_id AND turn = asked.turn AND NOT discarded
    ) AS said
) AS weighed
WHERE whole <= $5
ORDER BY place, turn, sequence
"""
_MOST = 32
_SHARE = 512 * 1024
"""What the messages of a run may take on the wire to be read together with those of others."""

_ANY_SIZE = 2**63 - 1


@dataclass(frozen=True, slots=True)
class _Found:
    """What is there of a run.

    Attributes:
        held: its row; None if it is no longer the worker's.
        said: its messages, if it has an agent still.
        approvals: those of its newest step.
    """

    held: Record | None
    said: Sequence[Record] = ()
    approvals: Sequence[Approval] = ()

    @property
    def too_large(self) -> bool:
        """Whether its messages were left out; there is a question at least."""
        return self.held is not None and _has_agent(self.held) and not self.said


class ContextReader:
    """Reads for all runs that a worker has just taken."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._reads = Together("read contexts", self._find_together, most=_MOST)

    def together(self) -> AbstractAsyncContextManager[None]:
        """Read together what is asked for at once, for as long as the block lasts."""
        return self._reads.open()

    async def read(self, claim: Claim) -> RunContext:
        """See `RunQueue.context`.

        Raises:
            FencedError: the run is no longer the worker's.
            AgentDeletedError: its agent is gone.
        """
        found = await self._reads.call(claim)
        if found is None:
            [found] = await self._find([claim], most_bytes=_ANY_SIZE)
        held = found.held
        if held is None:
            raise FencedError
        if not _has_agent(held):
            raise AgentDeletedError.of(claim.run.agent_id)
        if not found.said:
            raise FencedError  # its session was deleted between the two statements
        run = run_of(held)
        messages = [message_of(row) for row in found.said]
        turn = sum(row["turn"] == run.turn for row in found.said)
        return RunContext(
            run=run,
            agent=_agent_of(held),
            identity=Identity(run.tenant, run.user_id),
            history=messages[: len(messages) - turn],
            turn=messages[len(messages) - turn :],
            started_calls=frozenset(ToolCallId(id_) for id_ in held["started_calls"]),
            elapsed=held["elapsed"],
            approvals={each.question.tool_call_id: each for each in found.approvals},
            session_time_zone=held["session_time_zone"],
        )

    async def _find_together(self, claims: Sequence[Claim]) -> Sequence[_Found | None]:
        try:
            found = await self._find(claims, most_bytes=_SHARE)
        except asyncpg.PostgresError:
            # One of them cannot be read; alone, it meets its error alone.
            return [None] * len(claims)
        return [None if each.too_large else each for each in found]

    async def _find(self, claims: Sequence[Claim], *, most_bytes: int) -> Sequence[_Found]:
        ids, epochs = [claim.run.id for claim in claims], [claim.epoch for claim in claims]
        async with connection(self._pool) as lent:
            rows = await lent.fetch(_HELD, ids, epochs)
            held = {row["place"]: row for row in rows if row["held"]}
            asked = [place for place, row in held.items() if _has_agent(row)]
            rows = await lent.fetch(
                _SAID,
                [held[place]["session_id"] for place in asked],
                [held[place]["turn"] for place in asked],
                [_most_messages(held[place]) for place in asked],
                MAX_HISTORY_BYTES,
                most_bytes,
            )
            approvals = await _approvals(lent, [held[place] for place in asked])
        said = {
            asked[at - 1]: list(group) for at, group in groupby(rows, key=lambda row: row["place"])
        }
        places = range(1, len(claims) + 1)
        return [
            _Found(row, said.get(place, ()), approvals.get(RunId(str(row["id"])), ()))
            if (row := held.get(place)) is not None
            else _Found(None)
            for place in places
        ]


async def _approvals(
    lent: PooledConnection, held: Sequence[Record]
) -> Mapping[RunId, Sequence[Approval]]:
    """What became of questions about the newest calls, by run; most runs have none."""
    rows = [row for row in held if row["has_approvals"]]
    found = defaultdict[RunId, list[Approval]](list)
    if rows:
        keys = [[row[key] for row in rows] for key in ("session_id", "turn", "step_count")]
        for approval in map(approval_of, await lent.fetch(_APPROVALS, *keys)):
            found[approval.run_id].append(approval)
    return found


def _has_agent(held: Record) -> bool:
    return held["has_agent"] is not None and held["agent_settings"] is not None


def _most_messages(held: Record) -> int:
    return window_from_json(held["agent_settings"]["context_window"]).messages_at_once


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
