"""One table of chunks for each vector space, found through a registry."""

import hashlib
import re
from collections.abc import Iterator

from services.common.db import PooledConnection, identifier
from services.knowledge.domain.models import EmbeddingSpace

_MAX_SLUG = 40

_FIND = "SELECT table_name FROM embedding_space WHERE model = $1 AND dimensions = $2"
_LOCK = "LOCK TABLE embedding_space IN SHARE ROW EXCLUSIVE MODE"
_TAKEN = "SELECT EXISTS (SELECT FROM embedding_space WHERE table_name = $1)"
_CREATE = "SELECT create_chunk_table($1, $2)"
_REGISTER = "INSERT INTO embedding_space (model, dimensions, table_name) VALUES ($1, $2, $3)"


class ChunkTables:
    """Knows which table holds the chunks of a space; a table, once made, keeps its name."""

    def __init__(self) -> None:
        self._names: dict[EmbeddingSpace, str] = {}

    async def name(self, connection: PooledConnection, space: EmbeddingSpace) -> str:
        """The table's name.

        Raises:
            LookupError: the space was never opened.
        """
        name = self._names.get(space) or await self._find(connection, space)
        if name is None:
            raise LookupError(f"no chunk table for {space}")
        return name

    async def open(self, connection: PooledConnection, space: EmbeddingSpace) -> None:
        """Make the space's table if there is none yet, within the caller's transaction."""
        if await self._find(connection, space) is not None:
            return
        await connection.execute(_LOCK)
        if await self._find(connection, space) is not None:
            return
        for name in table_names(space):
            if not await connection.fetchval(_TAKEN, name):
                await connection.execute(_CREATE, name, space.dimensions)
                await connection.execute(_REGISTER, space.model, space.dimensions, name)
                return

    async def _find(self, connection: PooledConnection, space: EmbeddingSpace) -> str | None:
        name: str | None = await connection.fetchval(_FIND, space.model, space.dimensions)
        if name is not None:
            self._names[space] = name
        return name


def of_table(statement: str, name: str) -> str:
    """The statement over `chunk_table` as one over the table of that name."""
    return statement.replace("chunk_table", identifier(name))


def table_names(space: EmbeddingSpace) -> Iterator[str]:
    """Names for a space's table, the most readable first, the last one all its own.

    `bge-m3` gives `chunk_bge_m3`; a model whose name reads the same, or the same one with other
    dimensions, has to do with a longer one.
    """
    slug = re.sub("[^a-z0-9]+", "_", space.model.lower()).strip("_")[:_MAX_SLUG] or "model"
    digest = hashlib.blake2b(f"{space.model}\0{space.dimensions}".encode(), digest_size=6)
    yield f"chunk_{slug}"
    yield f"chunk_{slug}_{space.dimensions}"
    yield f"chunk_{slug}_{digest.hexdigest()}"
