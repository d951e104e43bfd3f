"""Cutting text where a reader sees a border between characters: Unicode Standard Annex 29.

Clusters are looked for in slices: `regex` walks back over a whole text of flags to pair them up.
"""

import regex

_GRAPHEME = regex.compile(r"\X")
MAX_CLUSTER = 128
"""Longer clusters are no characters to anyone: Unicode's stream-safe text has 30 marks at most."""

_INK = regex.compile(r"[^\s\p{Z}\p{Cc}\p{Cf}]")


def is_blank(text: str, start: int = 0, end: int | None = None) -> bool:
    """Whether a stretch of text shows nothing: no more than spaces, controls and format signs."""
    return _INK.search(text, start, len(text) if end is None else end) is None


def grapheme_end(text: str, start: int) -> int:
    """The place after the grapheme cluster that begins at the border `start`."""
    found = _GRAPHEME.match(text[start : start + MAX_CLUSTER])
    return start + (found.end() if found else 1)


def last_border(text: str, start: int, limit: int) -> int:
    """The last place up to `limit` that is inside no cluster, counted from the border `start`.

    At least one cluster is always passed: the place lies after `limit` if the first one reaches
    beyond it.
    """
    limit = min(limit, len(text))
    place = grapheme_end(text, start)
    while place < limit:
        clusters = _GRAPHEME.findall(text[place : limit + MAX_CLUSTER])
        for cluster in clusters:
            end = place + min(len(cluster), MAX_CLUSTER)
            if end > limit:
                return place
            place = end
            if len(cluster) > MAX_CLUSTER:
                break
    return place


def is_border(text: str, at: int) -> bool:
    """Whether no cluster reaches over this place beside a space, a sign or an ideograph.

    Next to those the two characters decide; what has to be looked at from further back, flags and
    joined emoji, has no such neighbour.
    """
    pair = text[at - 1 : at + 1] if at else ""
    found = _GRAPHEME.match(pair)
    return not found or found.end() < len(pair) or len(pair) < 2


def shortened(text: str, limit: int) -> str:
    """The text, or as much of it as fits `limit` characters with an ellipsis."""
    if len(text) <= limit:
        return text
    end = last_border(text, 0, limit - 1)
    return text[: min(end, limit - 1)] + "…"
