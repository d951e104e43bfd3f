"""What the database and the world outside hold once all is healed."""

import asyncio
import json
from collections.abc import Sequence

import asyncpg

from tests.chaos.history import History, MessageRow, RunRow, Submit
from tests.chaos.system import ENOUGH, System
from tests.chaos.tools import ONCE_ONLY, effects

_RUNS = """
SELECT id, session_id, turn, state, stop_reason, crashes,
    input_tokens + output_tokens AS tokens,
    (agent_settings->'limits'->>'max_tokens')::bigint AS token_limit
FROM run ORDER BY session_id, turn
"""
_MESSAGES = """
SELECT session_id, sequence, id, run_id, role, text, tool_call_id,
    metadata->>'error' AS error, metadata ? 'notice' AS notice,
    (SELECT jsonb_object_agg(call->>'id', call->>'name')
     FROM jsonb_array_elements(tool_calls) AS call)::text AS calls
FROM chat_message ORDER BY session_id, sequence
"""
_COMMITTED = """
SELECT extract(epoch FROM create_time)::float8 AS at FROM chat_message
WHERE role <> 'user' ORDER BY create_time
"""
_UNFINISHED = "SELECT count(*) AS n FROM run WHERE end_time IS NULL"
# Whose lease lapsed a lease ago, or who could have begun two leases ago.
_STUCK = """
SELECT run.id, session_id, turn, state, epoch, crashes, lease_until FROM run
WHERE lease_until < clock_timestamp() - $1::float8 * interval '1 second'
   OR state = 'idle'
      AND create_time < clock_timestamp() - 2 * $1::float8 * interval '1 second'
      AND NOT EXISTS (
          SELECT FROM run AS earlier
          WHERE earlier.session_id = run.session_id AND earlier.turn < run.turn
            AND (earlier.end_time IS NULL
                 OR earlier.end_time > clock_timestamp() - 2 * $1::float8 * interval '1 second'))
"""
_HELD_TOGETHER = """
SELECT session_id, array_agg(id) AS ids FROM run WHERE lease_until IS NOT NULL
GROUP BY session_id HAVING count(*) > 1
"""


async def all_ended(system: System, *, within: float = ENOUGH) -> bool:
    """Whether every run has ended, or does so in time, in seconds."""
    clock = asyncio.get_running_loop().time
    until = clock() + within
    while await unfinished(system):
        if clock() > until:
            return False
        await asyncio.sleep(0.05)
    return True


async def history(system: System, submits: Sequence[Submit]) -> History:
    """All that is known of these messages; subscribers and samples come on top."""
    return History(
        submits=submits,
        runs=await runs(system),
        messages=await messages(system),
        effects=effects(system.ledger),
        once_only=ONCE_ONLY,
    )


async def runs(system: System) -> list[RunRow]:
    """The table of runs."""
    return [
        RunRow(
            id=str(row["id"]),
            session_id=str(row["session_id"]),
            turn=row["turn"],
            state=row["state"],
            stop_reason=row["stop_reason"],
            crashes=row["crashes"],
            tokens=row["tokens"],
            token_limit=row["token_limit"],
        )
        for row in await system.fetch(_RUNS)
    ]


async def messages(system: System) -> list[MessageRow]:
    """The table of messages."""
    return [_message(row) for row in await system.fetch(_MESSAGES)]


async def committed(system: System) -> list[float]:
    """When messages of runs were committed, by the database's clock, in seconds."""
    return [row["at"] for row in await system.fetch(_COMMITTED)]


async def unfinished(system: System) -> int:
    """How many runs have not ended."""
    [row] = await system.fetch(_UNFINISHED)
    return int(row["n"])


async def stuck(system: System, *, lease: float) -> list[str]:
    """Runs that nobody works on though somebody should have for two leases."""
    return [str(dict(row)) for row in await system.fetch(_STUCK, lease)]


async def held_together(system: System) -> list[tuple[str, Sequence[str]]]:
    """Sessions of which several runs are held at this moment."""
    rows = await system.fetch(_HELD_TOGETHER)
    return [(str(row["session_id"]), [str(id_) for id_ in row["ids"]]) for row in rows]


def _message(row: asyncpg.Record) -> MessageRow:
    return MessageRow(
        session_id=str(row["session_id"]),
        sequence=row["sequence"],
        id=str(row["id"]),
        run_id=str(row["run_id"]),
        role=row["role"],
        text=row["text"],
        calls=json.loads(row["calls"] or "{}"),
        call_id=row["tool_call_id"],
        error=row["error"],
        notice=bool(row["notice"]),
    )
