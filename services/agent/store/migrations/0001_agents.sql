-- Sizes are those of the contract, in bytes.

CREATE TABLE agent (
    id                 uuid PRIMARY KEY,
    tenant             text NOT NULL CHECK (octet_length(tenant) BETWEEN 1 AND 200),
    owner_user_id      text NOT NULL CHECK (octet_length(owner_user_id) BETWEEN 1 AND 200),
    visibility         text NOT NULL CHECK (visibility IN ('private', 'tenant')),
    display_name       text NOT NULL CHECK (octet_length(display_name) BETWEEN 1 AND 200),
    description        text NOT NULL CHECK (octet_length(description) <= 4000),
    system_prompt      text NOT NULL CHECK (octet_length(system_prompt) <= 65536),
    model              text NOT NULL CHECK (octet_length(model) <= 200),
    options            jsonb NOT NULL CHECK (octet_length(options::text) <= 4096),
    tools              text[] NOT NULL CHECK (cardinality(tools) <= 64),
    knowledge_base_ids uuid[] NOT NULL CHECK (cardinality(knowledge_base_ids) <= 20),
    retrieval          jsonb NOT NULL CHECK (octet_length(retrieval::text) <= 1024),
    limits             jsonb NOT NULL CHECK (octet_length(limits::text) <= 1024),
    context_window     jsonb NOT NULL CHECK (octet_length(context_window::text) <= 1024),
    create_time        timestamptz NOT NULL,
    update_time        timestamptz NOT NULL
);

-- A list is the merge of both: one's own, and what others share.
CREATE INDEX agent_own ON agent (tenant, owner_user_id, id);
CREATE INDEX agent_shared ON agent (tenant, id) WHERE visibility = 'tenant';

-- Calls that were made with a request id, so that a repeat gives the first result.
CREATE TABLE request (
    tenant      text NOT NULL,
    user_id     text NOT NULL,
    kind        text NOT NULL CHECK (kind IN ('create_agent', 'create_session', 'start_run')),
    id          uuid NOT NULL,
    digest      bytea NOT NULL CHECK (octet_length(digest) = 32),
    result_id   uuid NOT NULL,
    create_time timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, user_id, kind, id)
);
