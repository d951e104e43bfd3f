from services.agent.domain.tools.sql.tables import Column, Rows, Table, described, rendered

ID, NAME = Column("id", "integer"), Column("name", "text", "first and\nlast\u200b name")


class TestDescribed:
    def test_a_table_is_a_line(self) -> None:
        tables = [Table("public.a", (ID, NAME), "who buys"), Table('public."B"', (ID,))]

        assert described(tables) == (
            "- public.a (id integer, name text -- first and last name) -- who buys\n"
            '- public."B" (id integer)'
        )

    def test_what_finds_no_room_is_counted(self) -> None:
        wide = Table("wide", (ID,) * 65)

        assert described([wide]).endswith("id integer, and 5 more)")
        assert described([Table("a", (ID,))] * 60).endswith(
            "\n- and 10 more; information_schema.columns tells of them"
        )
        assert len(described([Table("a", (NAME,) * 60, "x" * 1000)] * 50)) < 12_500


class TestRendered:
    def test_rows_are_a_table(self) -> None:
        found = Rows((ID, NAME), (("1", "a|b\\c\r\nd"), ("2", None)), whole=True)

        assert rendered(found).splitlines() == [
            "| id (integer) | name (text) |",
            "|---|---|",
            "| 1 | a\\|b\\\\c\\nd |",
            "| 2 | NULL |",
            "",
            "(2 rows)",
        ]

    def test_it_says_whether_there_are_more(self) -> None:
        assert rendered(Rows((ID,), (), whole=True)).endswith("\n(0 rows)")
        assert rendered(Rows((ID,), (("1",),), whole=False)).endswith(
            "\n(the first 1 row; there are more)"
        )
