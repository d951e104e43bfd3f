-- The newest upload's bytes, apart from the rows that lists read. They are stored as they come:
-- PostgreSQL's own compression would cost more time than it saves room.
CREATE TABLE document_content (
    id      uuid  PRIMARY KEY,
    content bytea NOT NULL
);
ALTER TABLE document_content ALTER COLUMN content SET STORAGE EXTERNAL;

CREATE TABLE document (
    id                 uuid        PRIMARY KEY,
    knowledge_base_id  uuid        NOT NULL REFERENCES knowledge_base,
    display_name       text        NOT NULL CHECK (octet_length(display_name) BETWEEN 1 AND 1000),
    media_type         text        NOT NULL CHECK (octet_length(media_type) <= 200),
    metadata           json        NOT NULL CHECK (octet_length(metadata::text) <= 65536),
    content_id         uuid        NOT NULL REFERENCES document_content,
    content_hash       text        NOT NULL CHECK (content_hash ~ '^[0-9a-f]{64}$'),
    size_bytes         bigint      NOT NULL,
    version            integer     NOT NULL DEFAULT 1,
    state              text        NOT NULL DEFAULT 'PENDING'
                                   CHECK (state IN ('PENDING', 'INGESTING', 'READY', 'FAILED')),
    chunks_done        integer     NOT NULL DEFAULT 0,
    chunks_total       integer     NOT NULL DEFAULT 0,
    error              json,
    -- What search sees: the result of the last ingestion that came to its end.
    searchable_version integer     NOT NULL DEFAULT 0,
    generation         bigint      NOT NULL DEFAULT 0,
    chunk_count        integer     NOT NULL DEFAULT 0,
    model_digest       text        NOT NULL DEFAULT '' CHECK (octet_length(model_digest) <= 200),
    title              text        NOT NULL DEFAULT '' CHECK (octet_length(title) <= 4000),
    front_matter       json        NOT NULL DEFAULT '{}',
    -- The queue: who may claim it from when, under which epoch, after how many tries.
    claim_after        timestamptz,
    epoch              bigint      NOT NULL DEFAULT 0,
    attempts           integer     NOT NULL DEFAULT 0,
    retries            integer     NOT NULL DEFAULT 0,
    create_time        timestamptz NOT NULL,
    update_time        timestamptz NOT NULL,
    UNIQUE (knowledge_base_id, display_name),
    CHECK ((claim_after IS NULL) = (state IN ('READY', 'FAILED')))
);

CREATE INDEX document_listed ON document (knowledge_base_id, id);
CREATE INDEX document_content_of ON document (content_id);
-- Waiting documents, and those whose worker may have died: few, however many are stored.
CREATE INDEX document_claimable ON document (claim_after) WHERE claim_after IS NOT NULL;
