import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.agent.domain.chat import ToolSpec
from services.agent.domain.tools.checking import violations
from services.agent.domain.tools.schemas import deeper_than, plainly_fits, schema_json
from services.common.text import Json

TYPES = ("string", "boolean", "integer", "number", "array", "object", "null")


def spec(schema: dict[str, Json]) -> ToolSpec:
    return ToolSpec("look", "Looks.", schema, idempotent=True)


def an_object(**properties: Json) -> dict[str, Json]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def nested(depth: int) -> dict[str, Json]:
    """An object in an object, and so on."""
    schema: dict[str, Json] = {"type": "object"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=6,
)
SCHEMAS = st.recursive(
    st.builds(
        lambda kind, more: {"type": kind, **more},
        st.sampled_from(TYPES),
        st.sampled_from([{}, {"description": "x"}, {"minLength": 2}, {"minimum": 3}, {"enum": []}]),
    )
    | st.just({"anyOf": [{"type": "string"}]}),
    lambda inner: (
        st.builds(lambda items: {"type": "array", "items": items}, inner)
        | st.builds(
            lambda properties, required, more: {
                "type": "object",
                "properties": properties,
                "required": required,
                **more,
            },
            st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            st.lists(st.sampled_from("abc"), max_size=2),
            st.sampled_from([{}, {"additionalProperties": False}, {"additionalProperties": True}]),
        )
    ),
    max_leaves=6,
)


class TestPlainlyFits:
    @settings(max_examples=500, deadline=None)
    @given(SCHEMAS, VALUES)
    def test_what_fits_plainly_is_valid(self, schema: dict[str, Json], value: Json) -> None:
        given = spec(schema)

        assert not plainly_fits(value, given) or not list(violations(value, given.input_schema))

    @pytest.mark.parametrize(
        ("schema", "value"),
        [
            (an_object(a={"type": "string"}), {"a": ""}),
            (an_object(a={"type": "integer"}), {"a": 1}),
            (an_object(a={"type": "number"}), {"a": 1.5}),
            (an_object(a={"type": "boolean", "description": "x"}), {"a": True}),
            (an_object(a={"type": "array", "items": {"type": "integer"}}), {"a": [1, 2]}),
            (an_object(a=an_object(b={"type": "string"})), {"a": {"b": "x"}}),
            ({"type": "object"}, {}),
        ],
    )
    def test_common_arguments_are_told_at_once(self, schema: dict[str, Json], value: Json) -> None:
        assert plainly_fits(value, spec(schema))

    @pytest.mark.parametrize(
        ("schema", "value"),
        [
            (an_object(a={"type": "string"}), {}),
            (an_object(a={"type": "string"}), {"a": "x", "b": 1}),
            (an_object(a={"type": "integer"}), {"a": True}),
            (an_object(a={"type": "array", "items": {"type": "integer"}}), {"a": [1, "2"]}),
            (an_object(a={"type": "string", "maxLength": 1}), {"a": "x"}),
            (an_object(a={"$ref": "#/$defs/a"}), {"a": "x"}),
            ({"type": "object", "minProperties": 1}, {}),
            (nested(2000), {}),
            ({}, {}),
        ],
    )
    def test_anything_else_takes_a_closer_look(self, schema: dict[str, Json], value: Json) -> None:
        assert not plainly_fits(value, spec(schema))


class TestSchemaJson:
    def test_it_is_the_schema_and_made_once(self) -> None:
        given = spec(an_object(名={"type": "string"}))

        assert json.loads(schema_json(given)) == given.input_schema
        assert schema_json(given) is schema_json(given)
        assert "名" in schema_json(given)


class TestDeeperThan:
    @pytest.mark.parametrize(
        ("value", "levels"), [(1, 0), ("[", 0), ([], 1), ({"a": [1]}, 2), ([1, {"a": {}}], 3)]
    )
    def test_levels_are_those_of_lists_and_objects(self, value: object, levels: int) -> None:
        assert not deeper_than(value, levels)
        assert levels == 0 or deeper_than(value, levels - 1)
