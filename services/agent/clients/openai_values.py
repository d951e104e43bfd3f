"""Values of a server's JSON, taken for what they should be and nothing else. Pure."""

import json
from collections.abc import Mapping, Sequence

from services.common.text import Json


def mapping(value: object) -> Mapping[str, Json] | None:
    """An object; None for anything else."""
    return value if isinstance(value, dict) else None


def sequence(value: object) -> Sequence[Json]:
    """A list; an empty one for anything else."""
    return value if isinstance(value, list) else ()


def text(value: object) -> str:
    """A text, or the texts of a list of parts together; "" for anything else."""
    if isinstance(value, str):
        return value
    parts = (mapping(part) for part in sequence(value))
    return "".join(said for part in parts if part and isinstance(said := part.get("text"), str))


def arguments(value: object) -> str:
    """The arguments of a tool call as text; some servers send the object that they stand for."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)
