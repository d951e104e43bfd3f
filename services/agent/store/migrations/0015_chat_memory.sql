-- What is remembered of a session beside its messages: the summary of its older part, and the turn up
-- to which all is forgotten. Whoever deletes a session deletes this after its runs; there is no
-- foreign key, as a worker that writes it holds its run and would wait for the session.
CREATE TABLE chat_memory (
    session_id   uuid PRIMARY KEY,
    revision     bigint NOT NULL CHECK (revision >= 1),
    cleared_turn bigint NOT NULL DEFAULT 0 CHECK (cleared_turn >= 0),
    through_turn bigint NOT NULL DEFAULT 0 CHECK (through_turn >= 0),
    summary      text CHECK (octet_length(summary) <= 262144),
    question     text CHECK (octet_length(question) <= 65536),
    messages     bigint NOT NULL DEFAULT 0,
    model        text CHECK (octet_length(model) <= 200),
    update_time  timestamptz NOT NULL,
    CHECK (num_nonnulls(summary, question, model) IN (0, 3)),
    CHECK ((summary IS NOT NULL) = (through_turn > 0))
) WITH (fillfactor = 80);
