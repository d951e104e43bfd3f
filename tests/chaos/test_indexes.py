"""Unique indexes are the last line of defence; where one is gone, the suite goes red."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from services.common.ids import new_id
from tests.chaos import evidence
from tests.chaos.checker import Violation, violations
from tests.chaos.clients import Clients
from tests.chaos.history import Outcome, Submit
from tests.chaos.system import System, until

pytestmark = pytest.mark.asyncio(loop_scope="session")

_DEFINITION = """
SELECT tablename, indexdef FROM pg_indexes
WHERE schemaname = 'agent' AND indexname = $1 AND indexdef LIKE 'CREATE UNIQUE%'
"""
# Only the first run of a session stands in line. This is what a fault would make of it.
_ALL_IN_LINE = "UPDATE run SET place = 1 WHERE state = 'idle'"


@asynccontextmanager
async def without(system: System, index: str) -> AsyncIterator[None]:
    """A time without a unique index, at whose end there are no rows."""
    [row] = await system.fetch(_DEFINITION, index)
    await system.execute(f"ALTER TABLE {row['tablename']} DROP CONSTRAINT IF EXISTS {index}")
    await system.execute(f"DROP INDEX IF EXISTS {index}")
    try:
        yield
    finally:
        await system.start_afresh()
        await system.execute(row["indexdef"])


async def sent_twice(system: System, clients: Clients) -> list[Violation]:
    """Send one message twice, as a client does that got no answer; gives what is broken."""
    session_id, request_id = await clients.open_session(), new_id()
    for _ in range(2):
        answer = await clients.doors[0].send(session_id, "twice look", request_id=request_id)
    await system.workers[0].start()

    assert await evidence.all_ended(system)
    submit = Submit(session_id, "twice look", Outcome.OK, answer.run_id, tries=2)
    return violations(await evidence.history(system, [submit]))


async def both_in_line(system: System, clients: Clients) -> list[Violation]:
    """Have two runs of a session stand in line at once; gives what is broken."""
    session_id = await clients.open_session()
    for number in range(2):
        await clients.submit(session_id, f"line{number} look")
    await system.execute(_ALL_IN_LINE)
    system.model.gate.clear()
    for worker in system.workers[:2]:
        await worker.start()

    await until(lambda: asked(system))
    held = await evidence.held_together(system)
    system.model.gate.set()
    assert await evidence.all_ended(system)
    history = await evidence.history(system, clients.submits)
    return violations(replace(history, held_together=held))


async def asked(system: System) -> bool:
    """Whether somebody works on a run."""
    return system.model.asked.total() > 0


async def test_a_repeated_request_is_accepted_once(system: System, clients: Clients) -> None:
    """D1: the request's id is unique."""
    assert await sent_twice(system, clients) == []


async def test_a_session_has_one_run_at_work(system: System, clients: Clients) -> None:
    """I7: even where two of its runs were given out."""
    assert await both_in_line(system, clients) == []


async def test_without_its_index_a_repeated_request_is_noticed(
    system: System, clients: Clients
) -> None:
    """The suite goes red where request ids may repeat."""
    async with without(system, "request_pkey"):
        found = await sent_twice(system, clients)

    assert "I1" in {violation.invariant for violation in found}


async def test_without_its_index_a_second_run_at_work_is_noticed(
    system: System, clients: Clients
) -> None:
    """The suite goes red where a session may have two runs at work."""
    async with without(system, "run_held_once_per_session"):
        found = await both_in_line(system, clients)

    assert "I7" in {violation.invariant for violation in found}
