"""How a document is read: its media type, as far as ingestion cares."""

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath

from services.common.text import clean
from services.knowledge.domain.ingest.errors import UnsupportedMediaTypeError


class Syntax(Enum):
    """What the text of a document is written in."""

    MARKDOWN = "markdown"
    PLAIN = "plain"


SYNTAXES = {
    "text/markdown": Syntax.MARKDOWN,
    "text/x-markdown": Syntax.MARKDOWN,
    "text/plain": Syntax.PLAIN,
}
# Said by clients that do not know; the file name decides.
_UNDECLARED = frozenset({"", "application/octet-stream"})
_CHARSET = re.compile(r';[ \t]*charset[ \t]*=[ \t]*"?([^";]*)', re.IGNORECASE)
_PLAIN_SUFFIXES = frozenset({".txt", ".text", ".log"})


@dataclass(frozen=True, slots=True)
class MediaType:
    """A declared media type, understood.

    Attributes:
        syntax: how the text is parsed.
        charset: the declared charset, None where none is.
    """

    syntax: Syntax
    charset: str | None


def parse_media_type(declared: str, *, name: str, field: str) -> MediaType:
    """Understand a media type such as `text/markdown; charset=windows-1252`.

    An empty one, or `application/octet-stream`, is decided by the suffix of the document's name:
    plain text for `.txt`, `.text` and `.log`, else Markdown.

    Raises:
        UnsupportedMediaTypeError: for a type that is not text ingestion can read.
    """
    essence = declared.split(";", 1)[0].strip().lower()
    parameter = _CHARSET.search(declared)
    if essence in _UNDECLARED:
        suffix = PurePosixPath(name.lower()).suffix
        syntax = Syntax.PLAIN if suffix in _PLAIN_SUFFIXES else Syntax.MARKDOWN
    elif essence in SYNTAXES:
        syntax = SYNTAXES[essence]
    else:
        raise UnsupportedMediaTypeError(
            field=field, media_type=clean(declared), supported=tuple(SYNTAXES)
        )
    charset = parameter[1].strip() if parameter else ""
    return MediaType(syntax, charset or None)
