-- A run can wait for a person to approve tool calls. No worker holds it then, though it has a lease:
-- the lease keeps others of its session waiting, and lapses when the time for an answer is over.

ALTER TABLE agent
    ADD COLUMN approvals jsonb NOT NULL DEFAULT '[]'
        CHECK (octet_length(approvals::text) <= 16384);

ALTER TABLE run
    ADD COLUMN park_time timestamptz,
    ADD COLUMN waited interval NOT NULL DEFAULT '0',
    DROP CONSTRAINT run_state_check,
    DROP CONSTRAINT run_check,
    ADD CONSTRAINT run_state_check CHECK (
        state IN (
            'idle', 'planning', 'thinking', 'executing', 'awaiting_approval',
            'finished', 'error', 'cancelled')) NOT VALID,
    ADD CONSTRAINT run_check CHECK (
        (lease_until IS NOT NULL)
        = (state IN ('planning', 'thinking', 'executing', 'awaiting_approval'))) NOT VALID;

-- The questions to a person. One that is pending past its expire_time has expired.
CREATE TABLE approval (
    id               uuid NOT NULL UNIQUE,
    session_id       uuid NOT NULL,
    turn             bigint NOT NULL,
    step             integer NOT NULL,
    place            integer NOT NULL,
    run_id           uuid NOT NULL,
    tenant           text NOT NULL,
    user_id          text NOT NULL,
    call_id          text NOT NULL CHECK (octet_length(call_id) <= 256),
    tool_name        text NOT NULL CHECK (octet_length(tool_name) <= 256),
    arguments        text NOT NULL CHECK (octet_length(arguments) <= 65536),
    state            text NOT NULL CHECK (state IN ('pending', 'approved', 'denied', 'cancelled')),
    create_time      timestamptz NOT NULL,
    expire_time      timestamptz NOT NULL,
    resolve_time     timestamptz,
    resolver_user_id text CHECK (octet_length(resolver_user_id) <= 200),
    comment          text CHECK (octet_length(comment) <= 2000),
    PRIMARY KEY (session_id, turn, step, place),
    CHECK ((resolve_time IS NULL) = (state = 'pending')),
    CHECK ((resolver_user_id IS NOT NULL) = (state IN ('approved', 'denied')))
);

ALTER TABLE request
    DROP CONSTRAINT request_kind_check,
    ADD CONSTRAINT request_kind_check CHECK (
        kind IN ('create_agent', 'create_session', 'start_run', 'resolve_approval')) NOT VALID;
