import json
import time

import pytest

from services.agent.domain.tools.repair import mended_string, mended_text, mended_values
from services.common.text import Json

SCHEMA: dict[str, Json] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "n": {"type": "integer", "default": 1},
        "size": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "loud": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "either": {"type": ["string", "integer"]},
        "any": {},
        "choice": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/other"}]},
    },
    "required": ["text"],
}


class TestMendedText:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ('```json\n{"a": 1}\n```', {"a": 1}),
            (' ```\n{"a": 1}\n``` \n', {"a": 1}),
            ('{"a": "one\ntwo\tthree"}', {"a": "one\ntwo\tthree"}),
            ('{"a": [1, 2,\n],\n}', {"a": [1, 2]}),
            ('{"a": "x,}", "b": "\\",]",}', {"a": "x,}", "b": '",]'}),
            (
                "{'a': 'it\\'s', 'b': None, 'c': [True, False]}",
                {"a": "it's", "b": None, "c": [1, 0]},
            ),
            ("```json\n{'a': {'b': 1.5},}\n```", {"a": {"b": 1.5}}),
        ],
    )
    def test_what_has_one_meaning_is_mended(self, text: str, value: object) -> None:
        assert mended_text(text) == value

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "{",
            '{"a": "x = ',
            '{"a": 1',
            '{"a": 1 "b": 2}',
            '{a: "b"}',
            "{'a': true}",
            "{'a': (1, 2)}",
            "{1: 2}",
            "{'a': 1j}",
            "{'a': b'x'}",
            "{'a', 'b'}",
            "{'a': open('x')}",
            "{'a': 10**999}",
            "['a']",
            "look for backups",
            '```json\n{"a": 1}',
            'Here it is: {"a": 1}',
            '{"a": 1} {"a": 2}',
        ],
    )
    def test_what_breaks_off_or_could_mean_more_is_not(self, text: str) -> None:
        assert mended_text(text) is None

    @pytest.mark.parametrize(
        "text",
        [
            "{" * 100_000,
            "{'a': " + "[" * 9_000,
            "{'a': " + "-" * 9_000 + "1}",
            '{"' + '\\"' * 50_000,
            '{"a": ' + ", " * 50_000,
            "```\n" + "{\n \t" * 20_000,
            "{'a': '" + "x" * 1_000_000 + "'}",
        ],
    )
    def test_hostile_text_takes_no_time(self, text: str) -> None:
        begun = time.process_time()

        assert mended_text(text) is None
        assert time.process_time() - begun < 0.5


class TestMendedString:
    @pytest.mark.parametrize(
        "text", ['{"n": 5}', '\n{"n": 5}\n', '```json\n{"n": 5}\n```', "{'n': 5}"]
    )
    def test_an_object_in_a_string_is_that_object(self, text: str) -> None:
        assert mended_string(text, SCHEMA) == {"n": 5}

    def test_a_bare_string_is_the_only_required_argument(self) -> None:
        assert mended_string(" look ", SCHEMA) == {"text": " look "}

    @pytest.mark.parametrize("text", ['{"text": "x', '["look"]', "```"])
    def test_what_breaks_off_is_no_bare_string(self, text: str) -> None:
        assert mended_string(text, SCHEMA) is None

    @pytest.mark.parametrize("required", [[], ["text", "n"], ["n"], ["either"], ["any"], None])
    def test_a_bare_string_that_could_be_several_things_is_none(self, required: Json) -> None:
        assert mended_string("look", {**SCHEMA, "required": required}) is None


class TestMendedValues:
    @pytest.mark.parametrize(
        ("name", "value", "mended"),
        [
            ("n", "5", 5),
            ("n", " -5 ", -5),
            ("n", 5.0, 5),
            ("size", "5", 5),
            ("size", "2.50", 2.5),
            ("text", 5, "5"),
            ("loud", "true", True),
            ("loud", "False", False),
            ("tags", '["a", "b"]', ["a", "b"]),
        ],
    )
    def test_a_value_that_means_one_thing_becomes_that(
        self, name: str, value: Json, mended: Json
    ) -> None:
        values, names = mended_values({name: value}, SCHEMA)

        assert (json.dumps(values), names) == (json.dumps({name: mended}), [name])

    def test_a_null_is_left_out_where_a_default_stands_for_it(self) -> None:
        assert mended_values({"text": "a", "n": None}, SCHEMA) == ({"text": "a"}, ["n"])

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("n", 5),
            ("n", 5.5),
            ("n", True),
            ("n", "five"),
            ("n", "05"),
            ("n", "1e3"),
            ("n", "9" * 5000),
            ("size", None),
            ("size", "null"),
            ("text", None),
            ("text", True),
            ("text", 1.10),
            ("text", ["a"]),
            ("loud", 1),
            ("loud", "yes"),
            ("tags", "a, b"),
            ("tags", '{"a": 1}'),
            ("tags", "[" * 100_000),
            ("either", 5),
            ("either", True),
            ("any", None),
            ("choice", "5"),
            ("unknown", None),
        ],
    )
    def test_any_other_value_stays_as_it_is(self, name: str, value: Json) -> None:
        values, names = mended_values({name: value}, SCHEMA)

        assert (json.dumps(values), names) == (json.dumps({name: value}), [])

    @pytest.mark.parametrize("schema", [{}, {"properties": []}, {"properties": {"n": True}}])
    def test_a_schema_that_says_nothing_changes_nothing(self, schema: dict[str, Json]) -> None:
        assert mended_values({"n": "5"}, schema) == ({"n": "5"}, [])
