"""Vectors to and from a real server."""

import asyncpg
import numpy as np
import pytest
from pgvector import HalfVector, Vector

from services.common.db import connection, open_pool
from services.knowledge.store.postgres.vectors import register_vectors

VALUES = [0.5, -1.0, 2.25]


class TestRegisterVectors:
    @pytest.mark.parametrize("type_name", ["vector", "halfvec"])
    @pytest.mark.parametrize("value", [VALUES, np.array(VALUES), np.array(VALUES, dtype="float16")])
    async def test_lists_and_arrays_come_back_equal(
        self, empty_database: str, type_name: str, value: object
    ) -> None:
        await _create_extension(empty_database, schema="public")
        async with (
            open_pool(
                empty_database, schema="t", application_name="t", on_connect=register_vectors
            ) as pool,
            connection(pool) as lent,
        ):
            read = await lent.fetchval(f"SELECT $1::{type_name}", value)

        assert isinstance(read, Vector | HalfVector)
        assert read.to_list() == VALUES

    async def test_finds_the_extension_in_any_schema(self, empty_database: str) -> None:
        await _create_extension(empty_database, schema="extensions")
        session = await asyncpg.connect(empty_database)
        try:
            await register_vectors(session)

            assert Vector(VALUES) == await session.fetchval("SELECT $1::extensions.vector", VALUES)
        finally:
            await session.close()

    async def test_does_nothing_without_the_extension(self, empty_database: str) -> None:
        async with (
            open_pool(
                empty_database, schema="t", application_name="t", on_connect=register_vectors
            ) as pool,
            connection(pool) as lent,
        ):
            assert await lent.fetchval("SELECT 1") == 1


async def _create_extension(dsn: str, *, schema: str) -> None:
    session = await asyncpg.connect(dsn)
    try:
        await session.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        await session.execute(f"CREATE EXTENSION vector SCHEMA {schema}")
    finally:
        await session.close()
