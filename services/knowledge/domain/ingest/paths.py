"""The heading path as the model is given it."""

from collections.abc import Iterator, Sequence

from services.knowledge.domain.ingest.graphemes import last_border
from services.knowledge.domain.ingest.meter import Meter

SEPARATOR = " > "
_GAP = "…"


def path_text(path: Sequence[str]) -> str:
    """The path on one line, such as `H1 > H2 > H3`; headings without text are left out."""
    return SEPARATOR.join(heading for heading in path if heading)


def fitting_path(path: Sequence[str], meter: Meter, max_tokens: int) -> str:
    """The path on one line within `max_tokens`, as much of it as says most.

    The section's own heading and the outermost one say more than those between; of a single heading
    too long its beginning is kept, and nothing where not even a character fits.
    """
    for candidate in _candidates([heading for heading in path if heading]):
        if meter.keeps_to(max_tokens, candidate):
            return candidate
    return shortened_to(path[-1] if path else "", meter, max_tokens)


def shortened_to(text: str, meter: Meter, max_tokens: int) -> str:
    """The text, or as much of its beginning as fits with an ellipsis; nothing if not even one."""
    if meter.keeps_to(max_tokens, text):
        return text
    good, bad = 0, len(text)
    while bad - good > 1:
        middle = (good + bad) // 2
        if meter.tokens(text[:middle] + _GAP) <= max_tokens:
            good = middle
        else:
            bad = middle
    end = last_border(text, 0, good)
    return text[:end] + _GAP if 0 < end <= good else ""


def _candidates(path: list[str]) -> Iterator[str]:
    yield SEPARATOR.join(path)
    if len(path) > 2:
        yield SEPARATOR.join((path[0], _GAP, path[-1]))
    if len(path) > 1:
        yield SEPARATOR.join((_GAP, path[-1]))
        yield path[-1]
