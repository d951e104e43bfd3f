-- The agent may be deleted while its sessions stay readable: no foreign key to it.
CREATE TABLE chat_session (
    id            uuid PRIMARY KEY,
    tenant        text NOT NULL CHECK (octet_length(tenant) BETWEEN 1 AND 200),
    user_id       text NOT NULL CHECK (octet_length(user_id) BETWEEN 1 AND 200),
    agent_id      uuid NOT NULL,
    title         text NOT NULL CHECK (octet_length(title) <= 400),
    last_sequence bigint NOT NULL DEFAULT 0 CHECK (last_sequence >= 0),
    create_time   timestamptz NOT NULL,
    update_time   timestamptz NOT NULL
) WITH (fillfactor = 80);

CREATE INDEX chat_session_of_user ON chat_session (tenant, user_id, id);
CREATE INDEX chat_session_of_agent ON chat_session (tenant, user_id, agent_id, id);

-- The work that answers one user message; `turn` is that message's sequence.
-- A run is held by a worker for as long as it has a lease; epoch counts the holds.
CREATE TABLE run (
    id               uuid PRIMARY KEY,
    session_id       uuid NOT NULL REFERENCES chat_session (id),
    tenant           text NOT NULL,
    user_id          text NOT NULL,
    agent_id         uuid NOT NULL,
    message_id       uuid NOT NULL,
    turn             bigint NOT NULL CHECK (turn >= 1),
    state            text NOT NULL CHECK (
        state IN ('idle', 'planning', 'thinking', 'executing', 'finished', 'error', 'cancelled')),
    stop_reason      text CHECK (octet_length(stop_reason) <= 64),
    step_count       integer NOT NULL DEFAULT 0,
    input_tokens     bigint NOT NULL DEFAULT 0,
    output_tokens    bigint NOT NULL DEFAULT 0,
    offered          jsonb,
    error_reason     text CHECK (octet_length(error_reason) <= 64),
    error_message    text CHECK (octet_length(error_message) <= 4096),
    cancel_requested boolean NOT NULL DEFAULT false,
    agent_settings   jsonb,
    started_calls    text[] NOT NULL DEFAULT '{}',
    epoch            bigint NOT NULL DEFAULT 0,
    crashes          integer NOT NULL DEFAULT 0,
    lease_until      timestamptz,
    create_time      timestamptz NOT NULL,
    start_time       timestamptz,
    end_time         timestamptz,
    UNIQUE (session_id, turn),
    CHECK ((lease_until IS NOT NULL) = (state IN ('planning', 'thinking', 'executing'))),
    CHECK ((end_time IS NOT NULL) = (state IN ('finished', 'error', 'cancelled'))),
    CHECK ((stop_reason IS NOT NULL) = (end_time IS NOT NULL))
) WITH (fillfactor = 80);

CREATE UNIQUE INDEX run_held_once_per_session ON run (session_id) WHERE lease_until IS NOT NULL;
CREATE INDEX run_lease ON run (lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX run_waiting ON run (create_time) WHERE state = 'idle';
CREATE INDEX run_unfinished ON run (session_id, turn) WHERE end_time IS NULL;

-- Completed messages, numbered 1, 2, 3 … per session in the order of commits.
CREATE TABLE chat_message (
    session_id   uuid NOT NULL REFERENCES chat_session (id),
    sequence     bigint NOT NULL CHECK (sequence >= 1),
    id           uuid NOT NULL,
    run_id       uuid NOT NULL,
    turn         bigint NOT NULL,
    step         integer NOT NULL,
    role         text NOT NULL CHECK (role IN ('user', 'assistant', 'tool', 'system')),
    text         text NOT NULL CHECK (octet_length(text) <= 1048576),
    tool_calls   jsonb CHECK (octet_length(tool_calls::text) <= 4194304),
    tool_call_id text CHECK (octet_length(tool_call_id) <= 256),
    tool_name    text CHECK (octet_length(tool_name) <= 256),
    citations    jsonb CHECK (octet_length(citations::text) <= 2097152),
    metadata     jsonb CHECK (octet_length(metadata::text) <= 4194304),
    wire_size    integer NOT NULL CHECK (wire_size BETWEEN 1 AND 3145728),
    create_time  timestamptz NOT NULL,
    PRIMARY KEY (session_id, sequence),
    CHECK ((role = 'tool') = (tool_call_id IS NOT NULL))
);

CREATE INDEX chat_message_of_turn ON chat_message (session_id, turn, sequence);
CREATE UNIQUE INDEX chat_message_one_result_per_call
    ON chat_message (run_id, step, tool_call_id) WHERE tool_call_id IS NOT NULL;
