from collections.abc import AsyncIterator

import asyncpg
import pytest

from services.agent.clients.sql.checks import (
    UnsafeDatabaseError,
    check_role,
    read_identity,
    read_tables,
)
from services.agent.domain.tools.sql.tables import Column, Table
from tests.agent.clients.sql.shop import Shop, open_shop
from tests.conftest import PostgresServer

# What is done, what the check then says, and how it is undone.
TOO_MUCH = (
    ("ALTER ROLE {role} SUPERUSER", "is a superuser", "ALTER ROLE {role} NOSUPERUSER"),
    ("ALTER ROLE {role} CREATEROLE", "has CREATEROLE", "ALTER ROLE {role} NOCREATEROLE"),
    ("ALTER ROLE {role} CREATEDB", "has CREATEDB", "ALTER ROLE {role} NOCREATEDB"),
    ("ALTER ROLE {role} REPLICATION", "has REPLICATION", "ALTER ROLE {role} NOREPLICATION"),
    ("ALTER ROLE {role} BYPASSRLS", "has BYPASSRLS", "ALTER ROLE {role} NOBYPASSRLS"),
    (
        "ALTER ROLE {role} CONNECTION LIMIT -1",
        "has no CONNECTION LIMIT",
        "ALTER ROLE {role} CONNECTION LIMIT 10",
    ),
    (
        "GRANT pg_read_server_files TO {role}",
        "is a member of pg_read_server_files",
        "REVOKE pg_read_server_files FROM {role}",
    ),
    (
        "GRANT pg_write_all_data TO {role}",
        "is a member of pg_write_all_data",
        "REVOKE pg_write_all_data FROM {role}",
    ),
    (
        "GRANT CREATE ON SCHEMA public TO PUBLIC",
        "may create objects in the schema public",
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
    ),
    (
        "GRANT INSERT ON orders TO {role}",
        "may write public.orders",
        "REVOKE INSERT ON orders FROM {role}",
    ),
    (
        "GRANT UPDATE (total) ON orders TO {role}",
        "may write public.orders",
        "REVOKE UPDATE (total) ON orders FROM {role}",
    ),
    (
        "GRANT TRIGGER ON salaries TO PUBLIC",
        "may write public.salaries",
        "REVOKE TRIGGER ON salaries FROM PUBLIC",
    ),
    (
        "GRANT USAGE ON SEQUENCE numbers TO {role}",
        "may advance the sequence public.numbers",
        "REVOKE USAGE ON SEQUENCE numbers FROM {role}",
    ),
    (
        "ALTER TABLE hidden.keys OWNER TO {role}",
        "owns hidden.keys",
        "ALTER TABLE hidden.keys OWNER TO CURRENT_USER",
    ),
    (
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql SECURITY DEFINER AS 'SELECT 1'",
        "may call public.f, which acts with the rights of its owner",
        "DROP FUNCTION f()",
    ),
)


@pytest.fixture
async def shop(postgres_server: PostgresServer) -> AsyncIterator[Shop]:
    async with open_shop(postgres_server) as shop:
        yield shop


class TestCheckRole:
    async def test_the_documented_role_can_read_and_nothing_else(self, shop: Shop) -> None:
        connection = await asyncpg.connect(shop.reader)
        try:
            await check_role(connection, where="databases.shop")
        finally:
            await connection.close()

    async def test_a_role_that_can_do_more_is_refused(self, shop: Shop) -> None:
        """One thing at a time: each is found, and named."""
        for done, told, undone in TOO_MUCH:
            await shop.run(done)
            connection = await asyncpg.connect(shop.reader)
            try:
                with pytest.raises(UnsafeDatabaseError) as raised:
                    await check_role(connection, where="databases.shop")
            finally:
                await connection.close()
            await shop.run(undone)

            message = str(raised.value)
            assert message.startswith(f"databases.shop: its role {shop.role} can do more than read")
            assert told in message, done
            assert message.endswith("docs/tools.md shows how to make one that cannot")

    async def test_what_it_can_become_counts(self, shop: Shop) -> None:
        """NOINHERIT hides a right until the role is set."""
        other = f"{shop.role}_writer"
        await shop.run(
            f"CREATE ROLE {other}",
            f"GRANT DELETE ON orders TO {other}",
            f"GRANT {other} TO {{role}} WITH INHERIT FALSE",
            f"ALTER ROLE {other} CREATEDB",
        )
        connection = await asyncpg.connect(shop.reader)
        try:
            with pytest.raises(UnsafeDatabaseError, match="has CREATEDB"):
                await check_role(connection, where="x")
        finally:
            await connection.close()
            await shop.run(f"DROP OWNED BY {other}", f"DROP ROLE {other}")

    async def test_of_many_reasons_some_are_told(self, shop: Shop) -> None:
        await shop.run("GRANT pg_write_all_data TO {role}")
        connection = await asyncpg.connect(shop.reader)
        try:
            with pytest.raises(UnsafeDatabaseError, match=r"; and \d+ more\. docs/tools\.md"):
                await check_role(connection, where="x")
        finally:
            await connection.close()


class TestReadIdentity:
    async def test_two_databases_of_a_server_differ_and_each_is_itself(
        self, shop: Shop, empty_database: str
    ) -> None:
        identities = []
        for dsn in (shop.admin, shop.reader, empty_database):
            connection = await asyncpg.connect(dsn)
            identities.append(await read_identity(connection))
            await connection.close()

        [first, same, other] = identities
        assert first == same
        assert (first[0], first[1] != other[1]) == (other[0], True)


class TestReadTables:
    async def test_what_can_be_read_is_told(self, shop: Shop) -> None:
        await shop.run('CREATE TABLE "Odd ""name" ("A b" int, c int)')
        await shop.run('GRANT SELECT ("A b") ON "Odd ""name" TO {role}')
        connection = await asyncpg.connect(shop.reader)
        try:
            tables = await read_tables(connection, (), where="x")
            orders = await read_tables(connection, ("public.orders",), where="x")
            with pytest.raises(
                UnsafeDatabaseError, match=r"^x: its role cannot read public\.salaries"
            ):
                await read_tables(connection, ("public.orders", "public.salaries"), where="x")
        finally:
            await connection.close()

        assert tables[0] == Table('public."Odd ""name"', (Column('"A b"', "integer"),))
        assert [table.name for table in tables[1:]] == ["public.customers", "public.orders"]
        assert tables[1].comment == "who buys"
        assert tables[1].columns[1] == Column("name", "text", "first and\nlast name")
        assert [table.name for table in orders] == ["public.orders"]
