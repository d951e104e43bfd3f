"""Both stores of API keys keep the contract."""

from collections.abc import AsyncIterator

import pytest

from services.common.db import open_pool
from services.gateway.domain.ports import KeyStore
from services.gateway.store.memory import MemoryKeyStore
from services.gateway.store.postgres import SCHEMA, PostgresKeyStore
from tests.contracts.gateway_keys import KeyStoreContract
from tests.pgbouncer import PgBouncer


class TestMemory(KeyStoreContract):
    @pytest.fixture
    def store(self) -> KeyStore:
        return MemoryKeyStore()


class TestPostgres(KeyStoreContract):
    @pytest.fixture
    async def store(self, database: str) -> AsyncIterator[KeyStore]:
        async with open_pool(database, schema=SCHEMA, application_name="test") as pool:
            yield PostgresKeyStore(pool)


class TestPooled(KeyStoreContract):
    @pytest.fixture
    async def store(self, database: str, pooler: PgBouncer) -> AsyncIterator[KeyStore]:
        dsn = pooler.dsn(database)
        async with open_pool(dsn, schema=SCHEMA, application_name="test", pooled=True) as pool:
            yield PostgresKeyStore(pool)
