"""Text that every store can keep.

PostgreSQL refuses U+0000 in text and in jsonb, and UTF-8 has no lone surrogates. Both are replaced
by U+FFFD wherever text comes in, as CommonMark 0.31.2 section 2.3 does for U+0000.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def clean(text: str) -> str:
    """The text with each character that cannot be stored replaced by U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)


def clean_json(value: Json) -> Json:
    """The value with every string in it, keys included, cleaned."""
    match value:
        case str():
            return clean(value)
        case Mapping():
            return {clean(key): clean_json(item) for key, item in value.items()}
        case Sequence():
            return [clean_json(item) for item in value]
        case _:
            return value
