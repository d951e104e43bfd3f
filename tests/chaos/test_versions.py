"""Today's processes over the schema of the release after it, which an upgrade brings first.

The matrix asks for workers of the last release beside today's. There is no earlier release yet, so
the same is shown from the other side: what runs while a later release's migration is applied, and
what is started after it, goes on and completes.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from services.common.migrate import Migration, load_migrations, migrate
from tests.chaos import evidence
from tests.chaos.checker import violations
from tests.chaos.clients import Clients
from tests.chaos.processes import ROOT
from tests.chaos.system import System, until
from tests.chaos.tools import TOOL_SECONDS

pytestmark = pytest.mark.asyncio(loop_scope="session")

RUNS = 30
SLOW = {
    TOOL_SECONDS: "0.2",
    "CHATMIND_AGENT_RUNS_AT_ONCE": "3",
    "CHATMIND_AGENT_LEASE_SECONDS": "60",
}
MIGRATIONS = load_migrations(ROOT / "services" / "agent" / "store" / "migrations")
# Of each kind that a migration may be while the release before still runs.
LATER = """
CREATE TABLE later_thing (run_id uuid PRIMARY KEY, made_time timestamptz NOT NULL DEFAULT now());
ALTER TABLE run ADD COLUMN later_count integer NOT NULL DEFAULT 0, ADD COLUMN remark text;
ALTER TABLE chat_message ADD COLUMN rating integer;
ALTER TABLE chat_session ADD COLUMN archived boolean NOT NULL DEFAULT false;
ALTER TABLE agent ADD COLUMN colour text NOT NULL DEFAULT '';
ALTER TABLE tool_call ADD COLUMN later_note text;
CREATE INDEX run_later_count ON run (later_count) WHERE later_count > 0;
"""
BACK = """
DROP TABLE later_thing;
ALTER TABLE run DROP COLUMN later_count, DROP COLUMN remark;
ALTER TABLE chat_message DROP COLUMN rating;
ALTER TABLE chat_session DROP COLUMN archived;
ALTER TABLE agent DROP COLUMN colour;
ALTER TABLE tool_call DROP COLUMN later_note;
DELETE FROM schema_migration WHERE name = 'later.sql';
"""


@pytest_asyncio.fixture(loop_scope="session")
async def ahead(system: System) -> AsyncIterator[Migration]:
    """The migration of a later release, which is taken back at the end."""
    yield Migration(len(MIGRATIONS) + 1, "later.sql", LATER)
    await system.kill_workers()
    await system.execute(BACK)


async def test_all_runs_complete_amid_and_after_a_later_migration(
    system: System, clients: Clients, ahead: Migration
) -> None:
    """T-D13: half of the runs before, half after; a worker and a replica from before and after."""
    first, second = system.workers[:2]
    await first.start(**SLOW)
    for number in range(RUNS):
        await clients.submit(await clients.open_session(), f"version{number} look+pay look")
    await until(lambda: half_done(system))

    await migrate(system.dsn, [*MIGRATIONS, ahead], schema="agent")
    await second.start(**SLOW)
    await system.replicas[0].running.kill()
    await system.replicas[0].start(CHATMIND_AGENT_MIGRATE="true")
    for number in range(RUNS, 2 * RUNS):
        await clients.submit(await clients.open_session(), f"version{number} look+pay look")

    assert await evidence.all_ended(system)
    history = await evidence.history(system, clients.submits)
    assert [run.stop_reason for run in history.runs] == ["end_turn"] * 2 * RUNS
    assert [run.crashes for run in history.runs] == [0] * 2 * RUNS
    assert violations(history) == []


async def half_done(system: System) -> bool:
    """Whether half of the runs have ended."""
    return await evidence.unfinished(system) <= RUNS / 2
