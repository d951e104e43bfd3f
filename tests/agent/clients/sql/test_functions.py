from collections.abc import AsyncIterator

import asyncpg
import pytest

from services.agent.clients.sql.database import PostgresSqlDatabase
from services.agent.clients.sql.functions import check_functions, read_refused
from services.agent.domain.models import RunId
from services.agent.domain.tools.errors import RetryToolError
from tests.agent.clients.sql.corpus import BEYOND
from tests.agent.clients.sql.shop import OWN, Shop, open_shop
from tests.conftest import PostgresServer

RUN = RunId("r")


@pytest.fixture
async def shop(postgres_server: PostgresServer) -> AsyncIterator[Shop]:
    async with open_shop(postgres_server) as shop:
        yield shop


class TestRefused:
    async def test_what_acts_beyond_a_transaction_is_refused_however_it_is_written(
        self, shop: Shop
    ) -> None:
        sql = PostgresSqlDatabase(shop.settings(), own=OWN)
        for statement in BEYOND:
            with pytest.raises(RetryToolError, match=r"^(the query may not use|names cannot be)"):
                await sql.query(statement, run_id=RUN)

    async def test_a_query_cannot_end_another_one_of_the_role(self, shop: Shop) -> None:
        sql = PostgresSqlDatabase(shop.settings(), own=OWN)
        other = await asyncpg.connect(shop.reader)
        try:
            with pytest.raises(RetryToolError, match="pg_terminate_backend"):
                await sql.query(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE usename = current_user AND pid <> pg_backend_pid()",
                    run_id=RUN,
                )

            assert await other.fetchval("SELECT 1") == 1
        finally:
            await other.close()

    async def test_what_only_looks_like_it_is_asked(self, shop: Shop) -> None:
        sql = PostgresSqlDatabase(shop.settings(), own=OWN)
        rows = await sql.query(
            "SELECT random() < 1, now() IS NOT NULL, pg_table_size('orders') >= 0, name AS notify, "
            "U&'\\0041', 1 AS my_pg_notify FROM customers WHERE gen_random_uuid() IS NOT NULL",
            run_id=RUN,
        )

        assert rows.rows[0] == ("true", "true", "true", "Ann", "A", "1")

    async def test_functions_that_run_strings_are_refused_where_their_extension_is_there(
        self, shop: Shop
    ) -> None:
        try:
            await shop.run("CREATE EXTENSION tablefunc")
        except asyncpg.FeatureNotSupportedError:
            pytest.skip("this server has no tablefunc")
        connection = await asyncpg.connect(shop.reader)
        try:
            refused = await read_refused(connection)
        finally:
            await connection.close()

        with pytest.raises(RetryToolError, match="may not use crosstab"):
            check_functions("SELECT * FROM crosstab('…') AS t (a int)", refused)
