"""Cuts long results into pieces that end where a reader would pause. Pure."""

from typing import Final

# The best place to end, and so on; a piece is never less than three quarters of what it may be.
_ENDS: Final = ("\n\n", "\n", "。", ". ", " ")
_LEAST_SHARE: Final = 3, 4


def end_of_piece(text: str, start: int, most: int) -> int:
    """Where a piece that begins at `start` and has at most `most` characters ends.

    It ends behind a paragraph, else a line, a sentence or a word, if one ends late enough.

    Args:
        text: the whole.
        start: from 0, within the text.
        most: at least 1.
    """
    if len(text) - start <= most:
        return len(text)
    share, of = _LEAST_SHARE
    last, least = start + most, start + most * share // of
    for end in _ENDS:
        found = text.rfind(end, least, last)
        if found >= 0:
            return found + len(end)
    return last
