"""ChatMind's database on the embedded server, owned by a role that is not a superuser.

A superuser can run programs and read files as the user that the server runs as; services need
neither.
"""

from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from cli.local.cluster import DataDirectory
from cli.local.postgres import EmbeddedPostgres

OWNER = "chatmind"

_CREATE_OWNER = f"""
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{OWNER}') THEN
        CREATE ROLE {OWNER} NOSUPERUSER NOCREATEDB NOCREATEROLE;
    END IF;
END $$
"""
# Only a superuser can create the extension.
_CREATE_VECTOR = "CREATE EXTENSION IF NOT EXISTS vector SCHEMA public"


async def owned_database(server: EmbeddedPostgres, data_dir: Path) -> str:
    """Create the database with the vector extension if needed; returns its owner's address."""
    address = await server.create_database()
    password = DataDirectory(data_dir).owner_password()
    connection = await asyncpg.connect(address)
    try:
        await connection.execute(_CREATE_OWNER)
        # ALTER ROLE takes no parameters; the password has only letters, digits, "-" and "_".
        await connection.execute(f"ALTER ROLE {OWNER} LOGIN PASSWORD '{password}'")
        await connection.execute(f"ALTER DATABASE chatmind OWNER TO {OWNER}")
        await connection.execute(_CREATE_VECTOR)
    finally:
        await connection.close()
    parts = urlsplit(address)
    return parts._replace(netloc=f"{OWNER}:{password}@127.0.0.1:{server.port}").geturl()
