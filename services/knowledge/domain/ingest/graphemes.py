"""Cutting text where a reader sees a border between characters: Unicode Standard Annex 29."""

import regex

_GRAPHEME = regex.compile(r"\X")
_INK = regex.compile(r"[^\s\p{Z}\p{Cc}\p{Cf}]")


def is_blank(text: str, start: int = 0, end: int | None = None) -> bool:
    """Whether a stretch of text shows nothing: no more than spaces, controls and format signs."""
    return _INK.search(text, start, len(text) if end is None else end) is None


def grapheme_end(text: str, start: int) -> int:
    """The place after the grapheme cluster that begins at `start`."""
    found = _GRAPHEME.match(text, start)
    return found.end() if found else start + 1


def last_border(text: str, start: int, limit: int) -> int:
    """The last place up to `limit`, counted from the border `start`, that is in no cluster.

    At least one cluster is always passed: the place may lie after `limit` if the first one does.
    """
    place = grapheme_end(text, start)
    for cluster in _GRAPHEME.finditer(text, place):
        if cluster.end() > limit:
            break
        place = cluster.end()
    return place


def is_border(text: str, at: int) -> bool:
    """Whether no cluster reaches over this place from the character before it."""
    return at <= 0 or at >= len(text) or grapheme_end(text, at - 1) <= at


def shortened(text: str, limit: int) -> str:
    """The text, or as much of it as fits `limit` characters with an ellipsis."""
    if len(text) <= limit:
        return text
    return text[: last_border(text, 0, limit - 1)] + "…"
