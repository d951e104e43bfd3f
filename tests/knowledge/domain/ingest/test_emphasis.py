import time

import pytest

from services.knowledge.domain.ingest.emphasis import Delimiters


def visible(text: str) -> str:
    """The text with its runs of delimiters resolved."""
    output: list[str] = []
    delimiters = Delimiters(output)
    place = 0
    while place < len(text):
        end = place + 1
        if text[place] in "*_~":
            while end < len(text) and text[end] == text[place]:
                end += 1
        output.append(text[place:end])
        if text[place] in "*_~":
            delimiters.push(text, place, end)
        place = end
    delimiters.resolve(None)
    return "".join(output)


class TestDelimiters:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("*a*", "a"),
            ("**a**", "a"),
            ("***a***", "a"),
            ("****a****", "a"),
            ("*a **b***", "a b"),
            ("***a** b*", "a b"),
            ("**a*", "*a"),
            ("*a**", "a*"),
            ("a*b*c", "abc"),
            ("a * b * c", "a * b * c"),
            ("*a _b* c_", "a _b c_"),
            ("_a_", "a"),
            ("__a__", "a"),
            ("snake_case_name", "snake_case_name"),
            ("_a_b", "_a_b"),
            ("foo-_(bar)_", "foo-(bar)"),
            ("**注意：**请", "**注意：**请"),
            ("**注意**：请", "注意：请"),
            ("*foo**bar*", "foo**bar"),
            ("foo***bar***baz", "foobarbaz"),
            ("foo******bar*********baz", "foobar***baz"),
            ("**foo*bar**", "foo*bar"),
            ("*", "*"),
            ("**", "**"),
            ("* a*", "* a*"),
            ("*$*alpha", "*$*alpha"),
            ("*£*bravo.", "*£*bravo."),
            ("~~a~~", "a"),
            ("~~~a~~~", "~~~a~~~"),
            ("~a~", "~a~"),
            ("*~~a*~~", "~~a~~"),
            ("**~~a~~**", "a"),
        ],
    )
    def test_what_is_emphasis_vanishes(self, text: str, expected: str) -> None:
        assert expected == visible(text)

    @pytest.mark.parametrize("unit", ["*a_ ", "**x", "a**b", "_a __b ", "*a **b ***c ", "a*b_c~~"])
    def test_takes_linear_time(self, unit: str) -> None:
        begin = time.process_time()

        visible(unit * 20_000)

        assert time.process_time() - begin < 5
