from collections.abc import Sequence

import pytest

from services.agent.domain.chat import ToolEffect
from services.agent.domain.models import RunId
from services.agent.domain.tools.arguments import ArgumentsError, read_arguments
from services.agent.domain.tools.sql.tables import Column, Rows, Table
from services.agent.domain.tools.sql.tool import QuerySql
from tests.agent.domain.tools.contexts import CONTEXT

COLUMNS = (Column("id", "integer"),)


class Database:
    """A database of one row."""

    def __init__(self, name: str, tables: Sequence[Table] | None = ()) -> None:
        self.name = name
        self.description = f"what {name} has"
        self.tables = tables
        self.asked: list[str] = []

    async def query(self, sql: str, *, run_id: RunId) -> Rows:
        self.asked.append(sql)
        return Rows(COLUMNS, ((self.name,),), whole=True)


class TestSpec:
    def test_it_reads_only_and_what_it_brings_is_from_outside(self) -> None:
        spec = QuerySql([Database("shop")]).spec

        assert (spec.effect, spec.trusted, spec.idempotent) == (ToolEffect.READ_ONLY, False, True)

    def test_it_tells_what_there_is_as_soon_as_that_is_known(self) -> None:
        shop = Database("shop", None)
        tool = QuerySql([shop, Database("other")])
        assert "shop: what shop has\n(its tables could not be read" in tool.spec.description
        assert "other: what other has\n(no tables can be read)" in tool.spec.description

        shop.tables = [Table("public.orders", COLUMNS)]

        assert "shop has\n- public.orders (id integer)\n" in tool.spec.description
        assert tool.spec.input_schema is tool.spec.input_schema

    def test_a_database_is_named_where_there_are_several(self) -> None:
        one, two = QuerySql([Database("a")]).spec, QuerySql([Database("a"), Database("b")]).spec

        assert read_arguments('{"sql": "SELECT 1"}', one).values == {"sql": "SELECT 1"}
        with pytest.raises(ArgumentsError):
            read_arguments('{"sql": "SELECT 1"}', two)
        with pytest.raises(ArgumentsError):
            read_arguments('{"sql": "SELECT 1", "database": "c"}', two)


class TestRun:
    async def test_the_database_that_is_named_is_asked(self) -> None:
        first, second = Database("a"), Database("b")

        result = await QuerySql([first, second]).run({"sql": "SELECT 1", "database": "b"}, CONTEXT)

        assert (first.asked, second.asked) == ([], ["SELECT 1"])
        assert result.text == "| id (integer) |\n|---|\n| b |\n\n(1 row)"
        assert result.source == "the database b"

    async def test_the_only_one_needs_no_name(self) -> None:
        assert "| a |" in (await QuerySql([Database("a")]).run({"sql": "SELECT 1"}, CONTEXT)).text
