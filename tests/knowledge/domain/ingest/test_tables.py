import pytest

from services.knowledge.domain.ingest.tables import cells, starts_table


class TestStartsTable:
    @pytest.mark.parametrize(
        ("header", "delimiter"),
        [
            ("| a | b |", "|---|---|"),
            ("a | b", "- | -"),
            ("a | b", ":-: | -:"),
            ("| a |", "|-|"),
            ("| a |", "| :-- |"),
            ("|a|b|c|", "---|---|---"),
            ("| a \\| b |", "|---|"),
            ("  | a | b |  ", "  |--|--|  "),
            ("| 名称 | 含义 |", "| :--- | ---: |"),
            ("|  |  |", "|--|--|"),
        ],
    )
    def test_a_header_and_as_many_delimiters(self, header: str, delimiter: str) -> None:
        assert starts_table(header, delimiter)

    @pytest.mark.parametrize(
        ("header", "delimiter"),
        [
            ("a | b", "---"),
            ("a | b", "|---|"),
            ("| a | b |", "|---|---|---|"),
            ("a b", "---|---"),
            ("| a |", "| - - |"),
            ("| a |", "| = |"),
            ("| a |", "|::-|"),
            ("| a |", "||"),
            ("| a | b |", "| c | d |"),
            ("| a |", ""),
            ("| a \\| b |", "|---|---|"),
            ("a | b", "— | —"),
        ],
    )
    def test_anything_else_is_text(self, header: str, delimiter: str) -> None:
        assert not starts_table(header, delimiter)


class TestCells:
    @pytest.mark.parametrize(
        ("row", "expected"),
        [
            *(
                ("a", 1),
                ("| a |", 1),
                ("a | b", 2),
                ("| a | b |", 2),
                ("| a | b", 2),
                ("a | b |", 2),
            ),
            *(("|", 1), ("||", 1), ("|||", 2), ("a \\| b", 1), ("| \\| |", 1), ("", 1), ("a|", 1)),
        ],
    )
    def test_pipes_at_the_ends_and_escaped_ones_separate_nothing(
        self, row: str, expected: int
    ) -> None:
        assert expected == cells(row)
