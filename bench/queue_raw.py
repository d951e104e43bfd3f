"""Queues by hand over SKIP LOCKED: of jobs alone, and of jobs that leave what a run leaves."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from services.common.db import DriverPool

_CREATE = """
CREATE TABLE job (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payload bytea NOT NULL,
    taken boolean NOT NULL DEFAULT false
);
CREATE INDEX ON job (id) WHERE NOT taken;
"""
_FILL = "INSERT INTO job (payload) SELECT 'nothing' FROM generate_series(1, $1)"
_TAKE = """
UPDATE job SET taken = true
WHERE id IN (SELECT id FROM job WHERE NOT taken ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED)
RETURNING id
"""
_END = "DELETE FROM job WHERE id = ANY ($1)"

_CREATE_RUNS = """
CREATE TABLE session (
    id uuid PRIMARY KEY,
    last_sequence bigint NOT NULL DEFAULT 0,
    update_time timestamptz
) WITH (fillfactor = 80);
CREATE TABLE task (
    id bigint PRIMARY KEY,
    session_id uuid NOT NULL,
    state text NOT NULL DEFAULT 'idle',
    lease_until timestamptz,
    end_time timestamptz
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX ON task (session_id, id);
CREATE UNIQUE INDEX ON task (session_id) WHERE num_nulls(lease_until) = 0;
CREATE INDEX ON task (lease_until) WHERE num_nonnulls(lease_until) = 1;
CREATE INDEX ON task (session_id) WHERE end_time IS NULL;
CREATE INDEX ON task (id) WHERE state = 'idle';
CREATE TABLE message (
    session_id uuid NOT NULL,
    sequence bigint NOT NULL,
    id uuid NOT NULL,
    text text NOT NULL,
    create_time timestamptz NOT NULL,
    PRIMARY KEY (session_id, sequence)
);
"""
_FILL_RUNS = """
WITH asked AS (INSERT INTO session (id) SELECT uuidv7() FROM generate_series(1, $1) RETURNING id)
INSERT INTO task (id, session_id) SELECT row_number() OVER (), id FROM asked
"""
_TAKE_RUNS = """
UPDATE task SET state = 'planning', lease_until = clock_timestamp() + interval '30 seconds'
WHERE id = ANY (ARRAY (
    SELECT id FROM task WHERE state = 'idle' ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED))
RETURNING id
"""
_END_RUNS = """
WITH locked AS MATERIALIZED (
    SELECT id, last_sequence FROM session
    WHERE id = ANY (ARRAY (SELECT session_id FROM task WHERE id = ANY ($1)))
    FOR NO KEY UPDATE SKIP LOCKED
), written AS (
    UPDATE task SET state = 'finished', lease_until = NULL, end_time = clock_timestamp()
    FROM locked WHERE task.id = ANY ($1) AND task.session_id = locked.id
    RETURNING task.session_id, locked.last_sequence + 1 AS sequence, task.end_time AS moment
), numbered AS (
    UPDATE session SET last_sequence = written.sequence, update_time = written.moment
    FROM written WHERE session.id = written.session_id
)
INSERT INTO message (session_id, sequence, id, text, create_time)
SELECT session_id, sequence, uuidv7(), 'Nothing was to be done.', moment FROM written
"""


class Raw:
    """SKIP LOCKED by hand."""

    _tables, _fill, _take, _end = "job", _FILL, _TAKE, _END

    def __init__(self, pool: DriverPool, *, batch: int, jobs: int, name: str) -> None:
        self.name = name
        self._pool, self._batch, self._jobs = pool, batch, jobs

    async def prepare(self) -> None:
        """Jobs in the table."""
        await self._pool.execute(f"TRUNCATE {self._tables}")
        await self._pool.execute(self._fill, self._jobs)
        await self._pool.execute(f"VACUUM ANALYZE {self._tables}")

    async def work(self) -> int:
        """Take and end them."""
        await asyncio.gather(*(self._consume() for _ in range(self._pool.get_size())))
        return self._jobs

    async def _consume(self) -> None:
        async with self._pool.acquire() as session:
            while taken := await session.fetch(self._take, self._batch):
                await session.execute(self._end, [row["id"] for row in taken])


class RawRuns(Raw):
    """The same with a lease, a message at the end that is numbered in a session, and no DELETE."""

    _tables = "task, session, message"
    _fill, _take, _end = _FILL_RUNS, _TAKE_RUNS, _END_RUNS


@asynccontextmanager
async def raw_pool(dsn: str, *, connections: int) -> AsyncIterator[DriverPool]:
    """The connections of both queues, and their tables."""
    async with asyncpg.create_pool(dsn, min_size=connections, max_size=connections) as pool:
        await pool.execute(_CREATE)
        await pool.execute(_CREATE_RUNS)
        yield pool
