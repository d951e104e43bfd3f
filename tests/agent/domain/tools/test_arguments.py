import time

import pytest

from services.agent.domain.chat import ToolSpec
from services.agent.domain.tools.arguments import (
    MOST_DEPTH,
    Arguments,
    ArgumentsError,
    read_arguments,
)
from services.agent.domain.tools.function import object_schema
from services.common.text import Json

SPEC = ToolSpec(
    "look",
    "Looks.",
    object_schema(
        {
            "query": {"type": "string", "maxLength": 9},
            "n": {"type": "integer"},
            "size": {"type": "number"},
        },
        ["query"],
    ),
    idempotent=True,
)
BARE = ToolSpec("bare", "Bare.", object_schema({}, []), idempotent=True)


class TestDepth:
    """The parser of JSON stands some levels more than whoever walks its values afterwards."""

    @pytest.mark.parametrize("levels", [MOST_DEPTH, 300, 900])
    @pytest.mark.parametrize("value", ["{inner}", '"{inner}"'])
    def test_what_is_nested_too_deep_is_refused(self, levels: int, value: str) -> None:
        schema = object_schema({"n": {"type": "array", "items": {}}}, [])
        text = '{"n": ' + value.format(inner="[" * levels + "]" * levels) + "}"

        with pytest.raises(ArgumentsError, match="nested deeper than 100 levels"):
            read_arguments(text, ToolSpec("deep", "Deep.", schema, idempotent=True))

    def test_what_is_not_is_read(self) -> None:
        levels = MOST_DEPTH - 2
        schema = object_schema({"n": {}}, [])
        text = '{"n": ' + '{"a": ' * levels + "1" + "}" * levels + "}"

        assert read_arguments(text, ToolSpec("deep", "Deep.", schema, idempotent=True)).values


class TestLength:
    @pytest.mark.parametrize(
        "text", ['{"query": "' + "x" * 10_000_000, "{" + ",".join(['"a":1'] * 2_000_000) + "}"]
    )
    def test_what_no_message_could_hold_is_refused_at_once(self, text: str) -> None:
        begun = time.thread_time()
        with pytest.raises(ArgumentsError, match="longer than 524288 bytes"):
            read_arguments(text, SPEC)

        assert time.thread_time() - begun < 0.05


class TestReadArguments:
    def test_arguments_that_fit_are_given(self) -> None:
        arguments = read_arguments('{"query": "a", "n": 3}', SPEC)

        assert arguments == Arguments({"query": "a", "n": 3})

    @pytest.mark.parametrize("text", ["", "  \n", "{}"])
    def test_none_at_all_are_an_empty_object(self, text: str) -> None:
        assert read_arguments(text, BARE) == Arguments({})

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ('{"query": ', "not a JSON object; the JSON breaks at line 1, column 11"),
            ("look for backups", "not a JSON object"),
            ('["a"]', "must be a JSON object, not a list"),
            ('"[1]"', "must be a JSON object, not a string"),
            ("null", "must be a JSON object, not null"),
            ("7", "must be a JSON object, not a number"),
            ("true", "must be a JSON object, not a boolean"),
            ("[" * 100_000, "not a JSON object that can be read"),
            ('{"n": ' + "9" * 10_000 + "}", "not a JSON object that can be read"),
        ],
    )
    def test_what_is_no_object_is_told(self, text: str, told: str) -> None:
        with pytest.raises(ArgumentsError) as error:
            read_arguments(text, SPEC)

        assert told in str(error.value)

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("{}", "'query' is a required property"),
            ("", "'query' is a required property"),
            ('{"query": 5.5}', "query: 5.5 is not of type 'string'"),
            ('{"query": null}', "query: None is not of type 'string'"),
            ('{"query": 5, "n": "x"}', "query: 5 is not of type 'string'; n: 'x' is not of type"),
            ('"a query too long"', "query: 'a query too long' is too long"),
            ('{"query": "a", "kb_id": "7"}', "'kb_id' was unexpected"),
            ('{"query": "a", "size": NaN}', "size: None is not of type 'number'"),
            ('{"query": "a", "size": 1e999}', "size: None is not of type 'number'"),
            ('{"query": "a", "n": 1.5}', "n: 1.5 is not of type 'integer'"),
        ],
    )
    def test_what_does_not_fit_is_told_with_the_schema(self, text: str, told: str) -> None:
        with pytest.raises(ArgumentsError) as error:
            read_arguments(text, SPEC)

        assert told in str(error.value)
        assert '"query": {"type": "string"' in str(error.value)

    def test_a_huge_argument_is_not_repeated_back(self) -> None:
        with pytest.raises(ArgumentsError) as error:
            read_arguments('{"query": "' + "x" * 100_000 + '"}', SPEC)

        assert len(str(error.value)) < 1000

    def test_what_cannot_be_stored_is_replaced(self) -> None:
        arguments = read_arguments('{"query": "a\\u0000b\\ud800"}', SPEC)

        assert arguments.values == {"query": "a\ufffdb\ufffd"}

    @pytest.mark.parametrize(
        ("text", "values", "mended"),
        [
            ('```json\n{"query": "a"}\n```', {"query": "a"}, ("",)),
            ("{'query': 'a', 'n': 3,}", {"query": "a", "n": 3}, ("",)),
            ('"{\\"query\\": \\"a\\", \\"n\\": \\"3\\"}"', {"query": "a", "n": 3}, ("", "n")),
            ('"a"', {"query": "a"}, ("",)),
            ('{"query": 5, "n": null}', {"query": "5"}, ("query", "n")),
            ('{"query": "a", "n": 3.0}', {"query": "a", "n": 3}, ("n",)),
        ],
    )
    def test_what_has_one_meaning_is_mended_and_told(
        self, text: str, values: dict[str, Json], mended: tuple[str, ...]
    ) -> None:
        arguments = read_arguments(text, SPEC)

        assert arguments == Arguments(values, mended)
        assert str(arguments.values) == str(values)

    def test_arguments_that_cannot_be_checked_are_refused(self) -> None:
        schema = object_schema({"a": {"type": "string", "pattern": "^(a|a)*$"}}, ["a"])
        spec = ToolSpec("a", "A.", schema, idempotent=True)

        with pytest.raises(ArgumentsError, match="cannot be checked: a pattern takes too long"):
            read_arguments('{"a": "%sb"}' % ("a" * 60), spec)
