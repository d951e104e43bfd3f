-- What a run asks of another agent is a run in a session of its own; a call has one such run. It is
-- in no line: whoever holds the run that asked takes it. What it uses counts with that run, too.
-- Nothing that is there has to be looked at: it has none of this.
ALTER TABLE chat_session
    ADD COLUMN parent_run_id uuid,
    ADD COLUMN parent_call_key text,
    ADD CONSTRAINT chat_session_parent_call_key
        CHECK (octet_length(parent_call_key) <= 400) NOT VALID;
ALTER TABLE run
    ADD COLUMN parent_run_id uuid,
    ADD COLUMN parent_call_key text,
    ADD COLUMN callers uuid[] NOT NULL DEFAULT '{}',
    ADD COLUMN parent_limits jsonb,
    ADD COLUMN sub_input_tokens bigint NOT NULL DEFAULT 0,
    ADD COLUMN sub_output_tokens bigint NOT NULL DEFAULT 0,
    ADD COLUMN sub_tool_calls bigint NOT NULL DEFAULT 0,
    ADD CONSTRAINT run_parent_call_key CHECK (octet_length(parent_call_key) <= 400) NOT VALID,
    ADD CONSTRAINT run_of_sub_agent_in_no_line
        CHECK (parent_run_id IS NULL OR place IS NULL) NOT VALID;
