import time
from typing import Any

import pytest

from services.agent.domain.tools import checking
from services.agent.domain.tools.checking import UncheckableError, violations
from services.common.text import Json


def wrong(value: object, schema: dict[str, Json]) -> list[str]:
    return [each.message for each in violations(value, schema)]


class TestViolations:
    @pytest.mark.parametrize(
        ("value", "schema", "most"),
        [
            ("ab", {"pattern": "^a"}, 0),
            ("b", {"pattern": "^a"}, 1),
            ({"a1": 1, "b": 1}, {"patternProperties": {"^a": {"type": "string"}}}, 1),
            ({"a": 1}, {"properties": {"a": {}}, "additionalProperties": False}, 0),
            ({"b": 1}, {"properties": {"a": {}}, "additionalProperties": False}, 1),
            ({"a1": 1}, {"patternProperties": {"^a": {}}, "additionalProperties": False}, 0),
            ({"b": "x"}, {"additionalProperties": {"type": "integer"}}, 1),
            ([1, 1], {"uniqueItems": True}, 1),
            (3, {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}, 1),
        ],
    )
    def test_they_are_those_of_the_standard(
        self, value: object, schema: dict[str, Json], most: int
    ) -> None:
        assert most == len(wrong(value, schema))

    @pytest.mark.parametrize(
        "schema",
        [
            {"$ref": "#"},
            {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
            {"$ref": "#/$defs/absent"},
            {"$ref": "http://127.0.0.1:9/schema.json"},
            {"pattern": "^(a|a)*$"},
            {"patternProperties": {"^(a|a)*$": {}}},
            {"additionalProperties": False, "patternProperties": {"^(a|a)*$": {}}},
        ],
    )
    def test_what_leads_nowhere_or_takes_for_ever_is_told_soon(
        self, schema: dict[str, Json]
    ) -> None:
        begun = time.monotonic()

        for value in ("a" * 60 + "b", {"a" * 60 + "b": 1}):
            if "pattern" in schema and not isinstance(value, str):
                continue
            if "patternProperties" in schema and isinstance(value, str):
                continue
            with pytest.raises(UncheckableError):
                wrong(value, schema)

        assert time.monotonic() - begun < 2

    def test_a_fan_of_references_is_given_up(self) -> None:
        levels = {
            f"l{n}": {"allOf": [{"$ref": f"#/$defs/l{n + 1}"}, {"$ref": f"#/$defs/l{n + 1}"}]}
            for n in range(40)
        }
        schema: dict[str, Any] = {"$ref": "#/$defs/l0", "$defs": {**levels, "l40": {}}}
        begun = time.monotonic()

        with pytest.raises(UncheckableError, match="too many steps"):
            wrong({}, schema)

        assert time.monotonic() - begun < 2

    def test_a_schema_is_looked_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made: list[object] = []

        def counting(schema: object, **more: Any) -> object:
            made.append(schema)
            return real(schema, **more)

        real = checking._Validator
        monkeypatch.setattr(checking, "_Validator", counting)
        first, second = dict[str, Json]({"type": "object"}), dict[str, Json]({"type": "object"})
        for _ in range(3):
            assert wrong({}, first) == []
            assert wrong({}, second) == []

        assert made == [first, second]
