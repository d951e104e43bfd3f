"""Vectors between Python and pgvector, for the services that store them."""

from pgvector.asyncpg import register_vector

from services.common.session import Connection

_EXTENSION_SCHEMA = """
SELECT nspname FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace
WHERE extname = 'vector'
"""


async def register_vectors(connection: Connection) -> None:
    """Let `connection` take lists of floats and NumPy arrays as `vector` or `halfvec`.

    They are read as `pgvector.Vector` and `pgvector.HalfVector`, with `to_numpy` and `to_list`.
    Nothing happens if the database lacks the extension, so migrate before opening a pool.
    """
    schema = await connection.fetchval(_EXTENSION_SCHEMA)
    if schema is not None:
        await register_vector(connection, schema=schema)
