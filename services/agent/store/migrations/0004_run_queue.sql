-- A run that waits has a place in the queue once it is its session's turn. It is in line with all
-- tenants: behind the tenant's own runs, and beside the first ones of the others. How many runs of
-- a session have not ended is counted with the session, whose row is locked by whoever changes it.

ALTER TABLE chat_session ADD COLUMN unfinished integer NOT NULL DEFAULT 0;
UPDATE chat_session SET unfinished = counted.runs
FROM (
    SELECT session_id, count(*) AS runs FROM run WHERE end_time IS NULL GROUP BY session_id
) AS counted
WHERE chat_session.id = counted.session_id;

ALTER TABLE run
    ADD COLUMN cancel_reason text,
    ADD COLUMN discarded boolean NOT NULL DEFAULT false,
    ADD COLUMN attempt integer NOT NULL DEFAULT 1,
    ADD COLUMN spent_steps integer NOT NULL DEFAULT 0,
    ADD COLUMN spent_calls integer NOT NULL DEFAULT 0,
    ADD COLUMN spent_tokens bigint NOT NULL DEFAULT 0,
    ADD COLUMN place bigint,
    ADD CHECK (cancel_reason IN ('cancelled', 'interrupted')),
    ADD CHECK (place IS NULL OR state = 'idle');
UPDATE run SET cancel_reason = 'cancelled' WHERE cancel_requested;
UPDATE run SET place = in_line.place
FROM (
    SELECT id, row_number() OVER (PARTITION BY tenant ORDER BY create_time) AS place
    FROM run
    WHERE state = 'idle' AND NOT EXISTS (
        SELECT FROM run AS first
        WHERE first.session_id = run.session_id AND first.end_time IS NULL
          AND first.turn < run.turn)
) AS in_line
WHERE run.id = in_line.id;

-- The agent's settings are kept as its row has them.
UPDATE run
SET agent_settings = agent_settings || jsonb_build_object('context_window', agent_settings->'window')
WHERE end_time IS NULL AND agent_settings IS NOT NULL;

-- No index depends on the state, so that telling it changes none.
DROP INDEX run_waiting;
CREATE INDEX run_queue ON run (place, create_time) WHERE place IS NOT NULL;
CREATE INDEX run_unfinished_of_tenant ON run (tenant, place) WHERE end_time IS NULL;

ALTER TABLE run DROP COLUMN cancel_requested;
ALTER TABLE chat_message ADD COLUMN discarded boolean NOT NULL DEFAULT false;
