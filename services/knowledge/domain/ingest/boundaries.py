"""Where text may be cut: after a sentence, else a clause, else a word, at worst a character."""

from dataclasses import dataclass
from enum import IntEnum

import regex

from services.knowledge.domain.ingest.graphemes import is_border, last_border

# A better place is taken only if the part before it is at least one in so many of what would fit.
_LEAST_SHARE = 4
# How far past the limit the end is looked for of code or a link that must not be torn.
_MARGIN = 400

_CLOSING = r"[\"'”’»」』）)\]】》*_]*+"
_SENTENCE = regex.compile(
    rf"[。！？；…]++{_CLOSING}|[.!?]++{_CLOSING}(?=\s++[^\p{{Ll}}\s]|\s*+$)|\n[ \t]*+\n"
)
_CLAUSE = regex.compile(rf"[，、：—]++{_CLOSING}|[,;:]{_CLOSING}(?=\s)|\n")
_UNTORN = regex.compile(
    r"`++[^`\n]++`++|!?\[[^\[\]\n]{0,200}+\]\([^()\s]{0,200}+\)|<[^<>\s][^<>\n]{0,200}+>"
)
# Searched backwards. Scripts of East Asia put no spaces between words.
_LAST_SPACE = regex.compile(r"(?r)\s")
_LAST_WORD_END = regex.compile(r"(?r)\s|[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]")
_NO_LINE_BEGIN = frozenset("，。、；：！？…—）」』】》”’.,;:!?)]}%")


class Cut(IntEnum):
    """How good a place to cut is, worst first."""

    CHARACTER = 0
    WORD = 1
    CLAUSE = 2
    SENTENCE = 3


@dataclass(frozen=True, slots=True)
class Place:
    """Where a text is cut in two.

    Attributes:
        end: the place after the first part.
        following: where the second part begins; only white space lies between.
        cut: how good it is.
    """

    end: int
    following: int
    cut: Cut


def cut_prose(text: str, start: int, limit: int) -> Place:
    """The best place to cut `text[start:]` so that the first part ends by `limit`.

    The white space at the cut goes to neither part. The first part has at least one character, and
    is over the limit only if that is a cluster of several.
    """
    least = start + (limit - start) // _LEAST_SHARE
    untorn = [found.span() for found in _UNTORN.finditer(text, start, limit + _MARGIN)]
    for pattern, cut in ((_SENTENCE, Cut.SENTENCE), (_CLAUSE, Cut.CLAUSE)):
        ends = [found.end() for found in pattern.finditer(text, start, limit + _MARGIN)]
        for end in reversed(ends):
            torn = any(left < end < right for left, right in untorn)
            if least < end <= limit and not torn and is_border(text, end):
                return _place(text, start, end, cut)
    word = _last_word_end(text, start, limit)
    if word:
        return _place(text, start, word, Cut.WORD)
    return _place(text, start, last_border(text, start, limit), Cut.CHARACTER)


def cut_code(text: str, start: int, limit: int) -> Place:
    """The place to cut a line of code: after a space, else between characters.

    No white space is left out: in code it counts.
    """
    for space in _LAST_SPACE.finditer(text, _first_ink(text, start, limit), limit):
        end = space.end()
        if is_border(text, end):
            return Place(end, end, Cut.WORD)
    end = last_border(text, start, limit)
    return Place(end, end, Cut.CHARACTER)


def sentence_starts(text: str, start: int, end: int) -> list[int]:
    """Where sentences begin in `text[start:end]`, other than the first."""
    ends = (found.end() for found in _SENTENCE.finditer(text, start, end))
    return [after for after in (_skip_space(text, place) for place in ends) if after < end]


def _last_word_end(text: str, start: int, limit: int) -> int | None:
    """The last place by the limit at white space, or beside a letter of a script without any."""
    ink = _first_ink(text, start, limit)
    for found in _LAST_WORD_END.finditer(text, ink, limit + 1):
        for end in (found.end(), found.start()):
            begins_line = text[end : end + 1] not in _NO_LINE_BEGIN
            if ink < end <= limit and begins_line and is_border(text, end):
                return end
    return None


def _first_ink(text: str, start: int, limit: int) -> int:
    """Where the first character stands that is no white space; `limit` if there is none."""
    part = text[start:limit]
    return limit - len(part.lstrip())


def _place(text: str, start: int, end: int, cut: Cut) -> Place:
    """A cut that leaves the white space on both its sides out."""
    first = text[start:end].rstrip()
    return Place(start + len(first) if first else end, _skip_space(text, end), cut)


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace() and is_border(text, at + 1):
        at += 1
    return at
