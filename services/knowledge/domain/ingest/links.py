"""What links and link reference definitions are made of: CommonMark 0.31.2 sections 4.7, 6.3."""

import re

MAX_LABEL = 999
MAX_PARENTHESES = 32

_LABEL = re.compile(r"\[((?:[^\[\]\\]|\\[\s\S])*+)\]")
_ANGLED = re.compile(r"<(?:[^<>\\\n]|\\[^\n])*+>")
_BARE_PART = re.compile(r"(?:[^\\()\x00-\x20\x7f]|\\[!-/:-@\[-`{-~]|\\(?![!-/:-@\[-`{-~]))++")
_TITLE = re.compile(
    r"\"(?:[^\"\\]|\\[\s\S])*+\"|'(?:[^'\\]|\\[\s\S])*+'|\((?:[^()\\]|\\[\s\S])*+\)"
)
_SPACE_AND_LINE_END = re.compile(r"[ \t]*+(?:\n[ \t]*+)?")
_REST_OF_LINE = re.compile(r"[ \t]*+(?:\n|$)")


def normalise_label(label: str) -> str:
    """The form in which two labels match: case folded, white space collapsed."""
    return " ".join(label.casefold().split())


def skip_space(text: str, at: int) -> int:
    """The place after spaces and tabs with at most one line end among them."""
    found = _SPACE_AND_LINE_END.match(text, at)
    return found.end() if found else at


def label_at(text: str, at: int) -> tuple[str, int] | None:
    """The link label in brackets that begins here, and the place after it; it may be blank."""
    found = _LABEL.match(text, at)
    if not found or len(found[1]) > MAX_LABEL:
        return None
    return found[1], found.end()


def destination_end(text: str, at: int) -> int | None:
    """The place after the link destination that begins here; None if there is none."""
    if text.startswith("<", at):
        angled = _ANGLED.match(text, at)
        return angled.end() if angled else None
    place, depth = at, 0
    while True:
        part = _BARE_PART.match(text, place)
        place = part.end() if part else place
        following = text[place : place + 1]
        if following == "(" and depth < MAX_PARENTHESES:
            depth += 1
        elif following == ")" and depth:
            depth -= 1
        else:
            return place if place > at and not depth else None
        place += 1


def title_end(text: str, at: int) -> int | None:
    """The place after the link title that begins here; None if there is none."""
    found = _TITLE.match(text, at)
    return found.end() if found else None


def definitions(paragraph: str) -> tuple[list[str], int]:
    """The link reference definitions a paragraph begins with (section 4.7).

    Args:
        paragraph: its lines, without the white space they begin with.

    Returns:
        their normalised labels, and the place in the paragraph after the last of them.
    """
    labels: list[str] = []
    at = 0
    while found := _definition(paragraph, at):
        label, at = found
        labels.append(label)
    return labels, at


def _definition(text: str, at: int) -> tuple[str, int] | None:
    """The label of the definition that begins here, and the start of the line after it."""
    found = label_at(text, at)
    if not found or not found[0].strip(" \t\n") or not text.startswith(":", found[1]):
        return None
    after = destination_end(text, skip_space(text, found[1] + 1))
    if after is None:
        return None
    bare = _REST_OF_LINE.match(text, after)
    before_title = skip_space(text, after)
    titled = title_end(text, before_title) if before_title > after else None
    end = _REST_OF_LINE.match(text, titled) if titled else None
    end = end or bare
    return (normalise_label(found[0]), end.end()) if end else None
