"""Reads other ways to write the same: full-width, with other blanks and hyphens, or hidden. Pure.

Who types Chinese may write １３８, pages have no-break spaces between groups of digits, and a
character that nobody sees parts a number for a pattern and not for a reader.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_WIDE: Final = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_BLANKS: Final = dict.fromkeys(map(ord, "\u00a0\u1680\u202f\u205f\u3000"), " ") | dict.fromkeys(
    range(0x2000, 0x200B), " "
)
_HYPHENS: Final = dict.fromkeys([*range(0x2010, 0x2016), 0x2212, 0xFE58, 0xFE63], "-")
_SAME: Final[Mapping[int, int | str]] = {**_WIDE, **_BLANKS, **_HYPHENS}
_HIDDEN = re.compile(
    "[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]"
)


@dataclass(frozen=True, slots=True)
class Folded:
    """A text as it is searched.

    Attributes:
        text: it.
        places: where each of its characters stands in the original; None where all do in place.
    """

    text: str
    places: Sequence[int] | None = None

    def span(self, start: int, end: int) -> tuple[int, int]:
        """What `text[start:end]` is in the original; not empty."""
        if self.places is None:
            return start, end
        return self.places[start], self.places[end - 1] + 1


def folded(text: str) -> Folded:
    """The text with one way of writing for each character, and without those that are hidden."""
    if text.isascii():
        return Folded(text)
    if not _HIDDEN.search(text):
        return Folded(text.translate(_SAME))
    places = [place for place, each in enumerate(text) if not _HIDDEN.match(each)]
    return Folded("".join(text[place] for place in places).translate(_SAME), places)
