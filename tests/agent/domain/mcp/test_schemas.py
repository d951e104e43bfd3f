import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from services.agent.domain.chat import ToolSpec
from services.agent.domain.mcp.schemas import UnusableSchemaError, usable_schema
from services.agent.domain.tools.arguments import ArgumentsError, read_arguments
from tests.repo.tree import ROOT

CASE = ROOT / "tests" / "cases" / "39-mcp-schema-refs"
TOOLS = {each["name"]: each for each in json.loads((CASE / "tools.json").read_text())}
EXPECTED = json.loads((CASE / "expected.json").read_text())


def nested(levels: int) -> dict[str, Any]:
    return {"items": nested(levels - 1)} if levels else {}


class TestCase39:
    """Case 39: references, definitions and choices survive, and mean what they did."""

    @pytest.mark.parametrize("name", sorted(TOOLS))
    def test_the_samples_are_judged_as_by_the_original(self, name: str) -> None:
        schema = usable_schema(TOOLS[name]["inputSchema"])
        spec = ToolSpec(name, "", schema, idempotent=False)

        for sample in EXPECTED[name]["accept"]:
            assert read_arguments(json.dumps(sample), spec).values == sample
        for sample in EXPECTED[name].get("refuse", []):
            with pytest.raises(ArgumentsError):
                read_arguments(json.dumps(sample), spec)

    @pytest.mark.parametrize("name", sorted(TOOLS))
    def test_each_reference_leads_somewhere(self, name: str) -> None:
        schema = usable_schema(TOOLS[name]["inputSchema"])

        Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object"
        assert schema.get("$defs") == TOOLS[name]["inputSchema"].get("$defs")

    def test_a_tool_without_parameters_gets_an_empty_object(self) -> None:
        assert usable_schema(TOOLS["ping"]["inputSchema"]) == {"type": "object", "properties": {}}


class TestUsableSchema:
    def test_the_root_s_own_labels_are_left_out(self) -> None:
        schema = {"$schema": "http://json-schema.org/draft-07/schema#", "$id": "http://x/y"}

        assert usable_schema(schema) == {"type": "object", "properties": {}}

    def test_descriptions_have_nothing_invisible(self) -> None:
        schema = usable_schema({"properties": {"a": {"description": "a\u202eb\U000e0041"}}})

        assert schema["properties"] == {"a": {"description": "ab"}}

    @pytest.mark.parametrize(
        ("schema", "why"),
        [
            ({"type": "array"}, "not of type"),
            ({"properties": {"a": {"$ref": "http://169.254.169.254/x"}}}, "nothing is ever"),
            ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "nothing is ever fetched"),
            ({"properties": {"a": {"$ref": "#/$defs/gone"}}}, "not in it"),
            ({"properties": {"a": {"$ref": "#/properties/b/enum"}, "b": {"enum": []}}}, "not in"),
            ({"$defs": {"a": {"not": {"$ref": "x.json"}}}}, "not in it"),
            ({"properties": {"a": {"$id": "http://x"}}}, r"uses \$id within"),
            ({"properties": {"a": {"$schema": "http://x"}}}, r"uses \$schema within"),
            ({"properties": {"a": {"$dynamicRef": "#a"}}}, r"uses \$dynamicRef within"),
            ({"properties": {"a": {"type": "text"}}}, "not valid JSON Schema"),
            ({"properties": [1]}, "not valid JSON Schema"),
            ({"properties": {"a": {"pattern": "("}}}, "cannot be read"),
            ({"properties": {"a": {"pattern": "a" * 1001}}}, "over 1000 characters"),
            ({"patternProperties": {"[": {}}}, "cannot be read"),
            ({"patternProperties": {}, "unevaluatedProperties": False}, "mixes"),
            ({"properties": {"a": nested(40)}}, "deeper than 32"),
            ({"properties": {"a": {"enum": ["x" * 70_000]}}}, "larger than 65536"),
            ({"x": {"y": {"$id": "a"}}, "properties": {"a": {"$ref": "#/x/y"}}}, r"\$id"),
        ],
    )
    def test_what_would_not_work_is_refused(self, schema: dict[str, Any], why: str) -> None:
        with pytest.raises(UnusableSchemaError, match=why):
            usable_schema(schema)

    def test_a_property_may_have_any_name(self) -> None:
        names = {"$id": {"type": "string"}, "$ref": {"type": "string"}, "pattern": {}}

        assert usable_schema({"properties": names})["properties"] == names
