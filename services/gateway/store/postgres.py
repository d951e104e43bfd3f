"""API keys in PostgreSQL, schema `gateway`."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import asyncpg

from services.common.db import Pool, connection, ping
from services.common.identity import Role
from services.common.paging import Page
from services.gateway.domain.models import ApiKey, KeyId, Scope, StoredKey

SCHEMA = "gateway"
MIGRATIONS = Path(__file__).parent / "migrations"

_ADD = """
INSERT INTO api_key (
    id, digest, display_name, tenant, user_id, roles, narrowed_to,
    create_time, expire_time, revoke_time
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
"""
_FIND = "SELECT * FROM api_key WHERE id = $1"
_GET = "SELECT * FROM api_key WHERE id = $1 AND ($2::text IS NULL OR tenant = $2)"
_PAGE_OF_TENANT = "SELECT * FROM api_key WHERE tenant = $3 AND id > $1 ORDER BY id LIMIT $2"
_PAGE_OF_ALL = "SELECT * FROM api_key WHERE id > $1 ORDER BY id LIMIT $2"
_REVOKE = """
UPDATE api_key SET revoke_time = coalesce(revoke_time, $3)
WHERE id = $1 AND ($2::text IS NULL OR tenant = $2)
RETURNING *
"""


class PostgresKeyStore:
    """The port `KeyStore` over a pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def add(self, stored: StoredKey) -> None:
        """See the port."""
        key = stored.key
        async with connection(self._pool) as lent:
            await lent.execute(
                _ADD,
                key.id,
                stored.digest,
                key.display_name,
                key.tenant,
                key.user_id,
                _words(key.roles),
                _words(key.narrowed_to),
                key.create_time,
                key.expire_time,
                key.revoke_time,
            )

    async def find(self, key_id: KeyId) -> StoredKey | None:
        """See the port."""
        async with connection(self._pool) as lent:
            row = await lent.fetchrow(_FIND, key_id)
        return StoredKey(_key(row), bytes(row["digest"])) if row else None

    async def get(self, key_id: KeyId, *, tenant: str | None) -> ApiKey | None:
        """See the port."""
        async with connection(self._pool) as lent:
            row = await lent.fetchrow(_GET, key_id, tenant)
        return _key(row) if row else None

    async def page(self, page: Page, *, tenant: str | None) -> Sequence[ApiKey]:
        """See the port."""
        after = page.after[0] if page.after else ""
        async with connection(self._pool) as lent:
            if tenant is None:
                rows = await lent.fetch(_PAGE_OF_ALL, after, page.size)
            else:
                rows = await lent.fetch(_PAGE_OF_TENANT, after, page.size, tenant)
        return [_key(row) for row in rows]

    async def revoke(
        self, key_id: KeyId, *, tenant: str | None, revoke_time: datetime
    ) -> ApiKey | None:
        """See the port."""
        async with connection(self._pool) as lent:
            row = await lent.fetchrow(_REVOKE, key_id, tenant, revoke_time)
        return _key(row) if row else None


class DatabaseProbe:
    """The port `Probe` for the database."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def check(self) -> None:
        """Return if the database answers.

        Raises:
            ServiceError: it does not.
        """
        await ping(self._pool)


def _words(values: frozenset[Role] | frozenset[Scope]) -> list[str]:
    return sorted(str(value.value) for value in values)


def _key(row: asyncpg.Record) -> ApiKey:
    return ApiKey(
        id=KeyId(row["id"]),
        display_name=row["display_name"],
        tenant=row["tenant"],
        user_id=row["user_id"],
        roles=frozenset(Role(word) for word in row["roles"]),
        narrowed_to=frozenset(Scope(word) for word in row["narrowed_to"]),
        create_time=row["create_time"],
        expire_time=row["expire_time"],
        revoke_time=row["revoke_time"],
    )
