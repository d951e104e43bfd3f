"""Text in the one form that every later stage reads."""

import re

from services.common.text import clean

_FOREIGN_LINE_END = re.compile("\r\n?")


def normalise(text: str) -> str:
    """The text with LF as its only line end and no character that a store refuses.

    CRLF and CR end a line in CommonMark 0.31.2 section 2.1; U+2028, U+2029, U+0085, form feed and
    their like do not and stay as they are. U+0000 and lone surrogates read U+FFFD (section 2.3).
    """
    if "\r" in text:
        text = _FOREIGN_LINE_END.sub("\n", text)
    return clean(text)


def lines_of(text: str) -> list[str]:
    """The lines of a normalised text without their ends; only LF ends one, not `str.splitlines`."""
    return text.split("\n")
