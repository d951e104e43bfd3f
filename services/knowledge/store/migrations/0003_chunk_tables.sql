CREATE EXTENSION IF NOT EXISTS vector SCHEMA public;

-- Makes the table of a vector space. Vectors stay inside their row: an exact search reads them all,
-- and one read out of line is several times slower. What does not fit on a page goes out of line.
CREATE FUNCTION create_chunk_table(table_name text, dimensions integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF table_name !~ '^chunk_[a-z0-9_]{1,57}$' THEN
        RAISE EXCEPTION 'not the name of a chunk table: %', table_name;
    END IF;
    EXECUTE format(
        'CREATE TABLE %I (
             id                uuid    NOT NULL,
             knowledge_base_id uuid    NOT NULL,
             document_id       uuid    NOT NULL,
             generation        bigint  NOT NULL,
             ordinal           integer NOT NULL,
             start_line        integer NOT NULL,
             end_line          integer NOT NULL,
             token_count       integer NOT NULL,
             truncated         boolean NOT NULL,
             embedding         halfvec(%s) NOT NULL,
             text_digest       bytea   NOT NULL CHECK (octet_length(text_digest) = 16),
             heading_path      text[]  NOT NULL,
             text              text    NOT NULL CHECK (octet_length(text) <= 1048576),
             PRIMARY KEY (document_id, generation, ordinal)
         )', table_name, dimensions);
    EXECUTE format(
        'ALTER TABLE %I ALTER COLUMN embedding SET STORAGE %s',
        table_name, CASE WHEN dimensions <= 3900 THEN 'PLAIN' ELSE 'EXTERNAL' END);
    EXECUTE format('CREATE INDEX ON %I (knowledge_base_id)', table_name);
END
$$;
