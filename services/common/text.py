"""Text that every store can keep and every log can show.

PostgreSQL refuses U+0000 in text and in jsonb, and UTF-8 has no lone surrogates. Both are replaced
by U+FFFD wherever text comes in, as CommonMark 0.31.2 section 2.3 does for U+0000.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
# Legal in JSON, but terminals act on it, line splitters split at it, or UTF-8 lacks it.
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def clean(text: str) -> str:
    """The text with each character that cannot be stored replaced by U+FFFD."""
    if text.isascii():
        # Most text is; told without looking at it one character at a time.
        return text.replace("\x00", "\ufffd")
    return _UNSTORABLE.sub("\ufffd", text)


def clean_json(value: Json) -> Json:
    """The value with every string in it cleaned, keys included.

    NaN and the infinities, which JSON lacks and jsonb refuses, become null.
    """
    match value:
        case str():
            return clean(value)
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {clean(key): clean_json(item) for key, item in value.items()}
        case Sequence():
            return [clean_json(item) for item in value]
        case _:
            return value


def shortened(text: str, most_bytes: int) -> str:
    """The text, cleaned and cut to at most `most_bytes` of UTF-8; an ellipsis marks the cut."""
    raw = clean(text).encode()
    if len(raw) <= most_bytes:
        return raw.decode()
    return raw[: most_bytes - len("…".encode())].decode(errors="ignore") + "…"


def json_line(value: object, *, default: Callable[[Any], object] | None = None) -> str:
    """The value as JSON on one line, readable, with all unprintable characters escaped.

    Args:
        value: the value.
        default: gives a replacement for an object that JSON does not know.
    """
    encoded = json.dumps(value, ensure_ascii=False, default=default)
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", encoded)
