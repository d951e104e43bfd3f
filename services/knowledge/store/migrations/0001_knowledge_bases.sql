-- A vector space is a model at one length of vectors; its chunks live in a table of their own.
CREATE TABLE embedding_space (
    model      text    NOT NULL CHECK (octet_length(model) BETWEEN 1 AND 200),
    dimensions integer NOT NULL CHECK (dimensions BETWEEN 1 AND 16000),
    table_name text    NOT NULL UNIQUE CHECK (table_name ~ '^chunk_[a-z0-9_]{1,57}$'),
    PRIMARY KEY (model, dimensions)
);

CREATE TABLE knowledge_base (
    id                   uuid        PRIMARY KEY,
    tenant               text        NOT NULL CHECK (octet_length(tenant) BETWEEN 1 AND 200),
    owner_user_id        text        NOT NULL CHECK (octet_length(owner_user_id) BETWEEN 1 AND 200),
    display_name         text        NOT NULL CHECK (octet_length(display_name) BETWEEN 1 AND 200),
    description          text        NOT NULL CHECK (octet_length(description) <= 4000),
    type                 text        NOT NULL CHECK (type IN ('KNOWLEDGE', 'MEMORY')),
    embedding_model      text        NOT NULL,
    embedding_dimensions integer     NOT NULL,
    embed_field          text        NOT NULL CHECK (embed_field IN ('TITLE', 'TITLE_AND_CONTENT')),
    max_tokens           integer     NOT NULL CHECK (max_tokens BETWEEN 16 AND 8192),
    overlap_tokens       integer     NOT NULL CHECK (overlap_tokens BETWEEN 0 AND 4096),
    visibility           text        NOT NULL CHECK (visibility IN ('PRIVATE', 'TENANT')),
    document_count       bigint      NOT NULL DEFAULT 0 CHECK (document_count >= 0),
    chunk_count          bigint      NOT NULL DEFAULT 0 CHECK (chunk_count >= 0),
    create_time          timestamptz NOT NULL,
    update_time          timestamptz NOT NULL,
    CHECK (overlap_tokens * 2 < max_tokens),
    FOREIGN KEY (embedding_model, embedding_dimensions) REFERENCES embedding_space
);

-- Lists read the caller's own bases and the shared ones of the tenant, each in the order of ids.
CREATE INDEX knowledge_base_owned ON knowledge_base (tenant, owner_user_id, id);
CREATE INDEX knowledge_base_shared ON knowledge_base (tenant, id) WHERE visibility = 'TENANT';
CREATE INDEX knowledge_base_named ON knowledge_base (tenant, display_name, id);

-- What a request id stands for, written with the effect it had.
CREATE TABLE accepted_request (
    tenant         text        NOT NULL,
    user_id        text        NOT NULL,
    method         text        NOT NULL,
    request_id     uuid        NOT NULL,
    content_digest bytea       NOT NULL CHECK (octet_length(content_digest) = 32),
    resource_id    uuid        NOT NULL,
    create_time    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, user_id, method, request_id)
);
