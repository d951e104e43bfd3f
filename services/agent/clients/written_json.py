"""JSON objects within a text that a model wrote, taken apart as far as they hold. Pure."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

# Only the extent of a value matters, so no number is too long and no line break forbidden.
_DECODER: Final = json.JSONDecoder(parse_int=float, strict=False)
_KEY = re.compile(r'[\s,]*"((?:[^"\\]|\\.)*)"\s*:\s*')
_END = re.compile(r"[\s,]*\}")
_BEGINNING = re.compile(r"[\s,]*\{")


@dataclass(frozen=True, slots=True)
class Member:
    """The value of a key.

    Attributes:
        text: all that the model wrote.
        start: the place in it where the value begins.
        end: the place after the value; where it breaks off, the end of the text.
        string: what the value stands for if it is a string, else None.
        whole: whether it is a value at all.
    """

    text: str
    start: int
    end: int
    string: str | None = None
    whole: bool = True

    @property
    def raw(self) -> str:
        """The value as it was written."""
        return self.text[self.start : self.end]


@dataclass(frozen=True, slots=True)
class Written:
    """An object.

    Attributes:
        members: by key, as many as can be told apart.
        end: the place after it.
        whole: whether it was written to its end.
    """

    members: Mapping[str, Member]
    end: int
    whole: bool


def objects(text: str, place: int = 0) -> Sequence[Written]:
    """The objects that follow each other from a place on; only the last may be broken."""
    found: list[Written] = []
    while (not found or found[-1].whole) and (beginning := _BEGINNING.match(text, place)):
        found.append(_object(text, beginning.end()))
        place = found[-1].end
    return found


def _object(text: str, place: int) -> Written:
    members: dict[str, Member] = {}
    while key := _KEY.match(text, place):
        members[key[1]] = member = _member(text, key.end())
        place = member.end
        if not member.whole:
            return Written(members, place, whole=False)
    end = _END.match(text, place)
    return Written(members, end.end() if end else place, whole=end is not None)


def _member(text: str, place: int) -> Member:
    try:
        value, end = _DECODER.raw_decode(text, place)
    except (ValueError, RecursionError):
        return Member(text, place, len(text), whole=False)
    return Member(text, place, end, value if isinstance(value, str) else None)
