-- What became of each tool call. A run's calls go with its session.
CREATE TABLE tool_call (
    run_id     uuid NOT NULL,
    step       integer NOT NULL CHECK (step >= 1),
    place      integer NOT NULL CHECK (place >= 0),
    call_id    text NOT NULL CHECK (octet_length(call_id) <= 256),
    tool_name  text NOT NULL CHECK (octet_length(tool_name) <= 256),
    state      text NOT NULL CHECK (state IN ('planned', 'started', 'done', 'failed', 'unknown')),
    attempts   integer NOT NULL DEFAULT 0,
    error      text CHECK (octet_length(error) <= 256),
    plan_time  timestamptz NOT NULL,
    start_time timestamptz,
    end_time   timestamptz,
    PRIMARY KEY (run_id, step, place),
    CHECK ((end_time IS NOT NULL) = (state IN ('done', 'failed', 'unknown')))
) WITH (fillfactor = 80);

ALTER TABLE run DROP COLUMN started_calls;
