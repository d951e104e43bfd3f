-- Tenants exist by the name that a key gives them.
CREATE TABLE api_key (
    -- Hexadecimal digits of a UUIDv7, so that the order of ids is the order of creation.
    id           text COLLATE "C" PRIMARY KEY CHECK (id ~ '^[0-9a-f]{32}$'),
    digest       bytea NOT NULL CHECK (octet_length(digest) = 32),
    display_name text NOT NULL CHECK (octet_length(display_name) <= 200),
    tenant       text NOT NULL CHECK (octet_length(tenant) BETWEEN 1 AND 63),
    user_id      text NOT NULL CHECK (octet_length(user_id) BETWEEN 1 AND 200),
    roles        text[] NOT NULL,
    -- Empty for all that the roles give.
    narrowed_to  text[] NOT NULL,
    create_time  timestamptz NOT NULL,
    expire_time  timestamptz,
    revoke_time  timestamptz
);

CREATE INDEX api_key_by_tenant ON api_key (tenant, id);
