import asyncio
import time
from collections.abc import AsyncIterator, Sequence

import asyncpg
import pytest
from structlog.testing import capture_logs

from services.agent.clients.sql.checks import UnsafeDatabaseError, read_identity
from services.agent.clients.sql.database import (
    MOST_CELL_CHARS,
    MOST_RESULT_CHARS,
    PostgresSqlDatabase,
)
from services.agent.domain.models import RunId
from services.agent.domain.tools.errors import FailedToolError, RetryToolError, ToolError
from services.agent.domain.tools.sql.tables import Rows, Table, rendered
from tests.agent.clients.sql.corpus import CORPUS
from tests.agent.clients.sql.shop import OWN, Shop, open_shop
from tests.conftest import PostgresServer

RUN = RunId("r1")
# Everything that a statement could change, here and on the server.
_STATE = """
SELECT md5(concat_ws(';',
    (SELECT string_agg(orders::text, ',' ORDER BY id) FROM orders),
    (SELECT string_agg(customers::text, ',' ORDER BY id) FROM customers),
    (SELECT last_value FROM numbers), (SELECT last_value FROM orders_id_seq),
    (SELECT string_agg(relname || coalesce(relacl::text, ''), ',' ORDER BY oid) FROM pg_class
     WHERE relnamespace NOT IN ('pg_catalog'::regnamespace, 'pg_toast'::regnamespace)),
    (SELECT string_agg(proname, ',' ORDER BY oid) FROM pg_proc WHERE oid >= 16384),
    (SELECT string_agg(authid::text, ',' ORDER BY oid) FROM pg_authid AS authid),
    (SELECT count(*) FROM pg_largeobject_metadata), (SELECT count(*) FROM pg_database),
    (SELECT count(*) FROM pg_replication_slots), (SELECT count(*) FROM pg_namespace),
    (SELECT count(*) FROM pg_prepared_xacts), (SELECT count(*) FROM pg_extension)
))
"""
_LOCKS = """
SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
WHERE locktype = 'advisory' AND datname = current_database()
"""


@pytest.fixture
async def shop(postgres_server: PostgresServer) -> AsyncIterator[Shop]:
    async with open_shop(postgres_server) as shop:
        yield shop


async def ask(shop: Shop, sql: str, **changes: object) -> Rows:
    return await PostgresSqlDatabase(shop.settings(**changes), own=OWN).query(sql, run_id=RUN)


class TestQuery:
    async def test_rows_come_as_text_with_their_types(self, shop: Shop) -> None:
        found = await ask(
            shop,
            "SELECT id, name, NULL AS nothing, ARRAY[1.5] AS list, row(1, 'a') AS pair, id AS name "
            "FROM customers ORDER BY id DESC; ",
        )

        assert [(each.name, each.type) for each in found.columns] == [
            *(("id", "int4"), ("name", "text"), ("nothing", "text"), ("list", "numeric[]")),
            *(("pair", "record"), ("name", "int4")),
        ]
        assert found.rows == (
            ("2", "Bob | Co", None, "{1.5}", "(1,a)", "2"),
            ("1", "Ann", None, "{1.5}", "(1,a)", "1"),
        )
        assert found.whole

    @pytest.mark.parametrize(
        "sql", ["SELECT 1 -- end", "SELECT 1 /* ; */", "VALUES (1)", "WITH x AS (SELECT 1) TABLE x"]
    )
    async def test_every_kind_of_query_is_one(self, shop: Shop, sql: str) -> None:
        assert (await ask(shop, sql)).rows == (("1",),)

    async def test_more_rows_than_permitted_are_not_fetched(self, shop: Shop) -> None:
        found = await ask(shop, "SELECT * FROM generate_series(1, 1000) AS n", max_rows=50)

        assert ([row[0] for row in found.rows], found.whole) == (
            [str(n) for n in range(1, 51)],
            False,
        )
        assert (await ask(shop, "SELECT * FROM generate_series(1, 50)", max_rows=50)).whole

    async def test_a_long_value_is_cut(self, shop: Shop) -> None:
        [[value]] = (await ask(shop, "SELECT repeat('x', 10000000)")).rows

        assert value == "x" * MOST_CELL_CHARS + "…"

    async def test_long_rows_end_early(self, shop: Shop) -> None:
        columns = ", ".join(["repeat('x', 2000)"] * 100)

        found = await ask(shop, f"SELECT {columns} FROM generate_series(1, 200)")

        size = sum(len(value or "") for row in found.rows for value in row)
        assert not found.whole
        assert size < 12 * MOST_RESULT_CHARS

    async def test_queries_at_a_time_are_bounded(self, shop: Shop) -> None:
        database = PostgresSqlDatabase(shop.settings(connections=2), own=OWN)
        sql = (
            "SELECT count(*)::int FROM pg_stat_activity, pg_sleep(0.1) WHERE usename = current_user"
        )

        found = await asyncio.gather(*(database.query(sql, run_id=RUN) for _ in range(6)))

        assert max(int(each.rows[0][0] or 0) for each in found) == 2

    async def test_a_query_sets_nothing_for_the_next(self, shop: Shop) -> None:
        database = PostgresSqlDatabase(shop.settings(), own=OWN)
        with pytest.raises(RetryToolError, match="may not use set_config"):
            await database.query("SELECT set_config('search_path', 'hidden', false)", run_id=RUN)

        found = await database.query("SELECT current_setting('search_path')", run_id=RUN)

        assert found.rows == (('"$user", public',),)

    async def test_neither_queries_nor_rows_get_into_the_log(self, shop: Shop) -> None:
        with capture_logs() as logs:
            await ask(shop, "SELECT name FROM customers")
            with pytest.raises(RetryToolError):
                await ask(shop, "SELECT name::int FROM customers")

        assert [each["event"] for each in logs] == ["query answered", "query failed"]
        assert "Ann" not in repr(logs)
        assert "SELECT" not in repr(logs)


class TestErrors:
    @pytest.mark.parametrize(
        ("sql", "told"),
        [
            ("SELECT nothing", 'the database says: column "nothing" does not exist'),
            ("SELECT nam FROM customers", "Perhaps you meant to reference the column"),
            ("SELECT 1; SELECT 2", "cannot insert multiple commands"),
            ("DELETE FROM orders", "only one SELECT that brings columns"),
            ("SELECT $1::int", "must have its values in it"),
            (f"SELECT {', '.join('1' * 101)}", "the query has 101 columns; 100 can be shown"),
            ("SELECT * FROM salaries", "permission denied for table salaries"),
            ("SELECT 1 / 0", "division by zero"),
            ("SELECT '\u202ex'::int", 'invalid input syntax for type integer: "x"'),
        ],
    )
    async def test_what_the_model_can_mend_is_told(self, shop: Shop, sql: str, told: str) -> None:
        with pytest.raises(RetryToolError) as raised:
            await ask(shop, sql)

        assert told in raised.value.message
        assert len(raised.value.message) < 500

    async def test_nothing_can_be_changed(self, shop: Shop) -> None:
        with pytest.raises(FailedToolError, match=r"^nothing can be changed"):
            await ask(shop, "SELECT lo_create(0)")

    async def test_a_database_that_is_away_is_told_and_found_again(self, shop: Shop) -> None:
        """The service starts without it, and looks at it when it is asked."""
        database = PostgresSqlDatabase(shop.settings(), own=OWN)
        await shop.run("ALTER ROLE {role} NOLOGIN")
        await database.read()
        with pytest.raises(FailedToolError, match=r"^the database shop cannot answer this"):
            await database.query("SELECT 1", run_id=RUN)
        assert database.tables is None

        await shop.run("ALTER ROLE {role} LOGIN")
        await database.query("SELECT 1", run_id=RUN)

        tables: Sequence[Table] = database.tables or ()
        assert [table.name for table in tables] == ["public.customers", "public.orders"]

    async def test_a_server_that_says_nothing_is_given_up_in_time(self, shop: Shop) -> None:
        gone = asyncio.Event()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await reader.read(1000):
                pass
            writer.close()
            gone.set()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            dsn = f"postgresql://a:b@127.0.0.1:{port}/c?sslmode=disable"
            begin = time.monotonic()
            with pytest.raises(RetryToolError, match="took longer than"):
                await ask(shop, "SELECT 1", dsn=dsn, seconds=0.3)
            assert time.monotonic() - begin < 0.8
            await gone.wait()


class TestCorpus:
    """T-X11: whatever a model sends, it reads what the role may read, and that in time."""

    def test_there_are_enough(self) -> None:
        assert len(set(CORPUS)) >= 150

    @pytest.mark.timeout(120)
    async def test_nothing_is_written_and_nothing_takes_long(
        self, shop: Shop, database: str
    ) -> None:
        """Nor does ChatMind's own database hear of it, on the same server though it is."""
        seconds, heard = 0.5, list[object]()
        sql = PostgresSqlDatabase(shop.settings(seconds=seconds), own=OWN)
        own, theirs = await asyncpg.connect(database), await asyncpg.connect(shop.admin)
        try:
            for each in (own, theirs):
                await each.add_listener("chatmind", lambda *told: heard.append(told))
            before = await theirs.fetchval(_STATE)
            for statement in CORPUS:
                begin = time.monotonic()
                try:
                    text = rendered(await sql.query(statement, run_id=RUN))
                except ToolError as error:
                    text = error.message
                assert time.monotonic() - begin < seconds + 0.5, statement
                assert "8675309" not in text, statement
                locks = (
                    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = $1"
                )
                oid = "SELECT oid FROM pg_database WHERE datname = current_database()"
                assert await own.fetchval(locks, await own.fetchval(oid)) == 0, statement

            assert await theirs.fetchval(_STATE) == before
            assert heard == []
            left = f"SELECT count(*) FROM pg_stat_activity WHERE usename = '{shop.role}'"
            assert await theirs.fetchval(left) == 0
        finally:
            await own.close()
            await theirs.close()


class TestOwn:
    async def test_chatminds_own_database_is_refused_under_any_name(self, shop: Shop) -> None:
        connection = await asyncpg.connect(shop.admin)
        try:
            own = await read_identity(connection)
        finally:
            await connection.close()
        database = PostgresSqlDatabase(
            shop.settings(dsn=shop.reader.replace("127.0.0.1", "localhost")), own=own
        )

        with pytest.raises(UnsafeDatabaseError, match="this is ChatMind's own database"):
            await database.read()
        with pytest.raises(FailedToolError, match=r"^the database shop must not be asked"):
            await database.query("SELECT 1", run_id=RUN)
