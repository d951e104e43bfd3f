"""Makes untrusted text safe to show on a terminal.

Names, answers and errors come from people, models and documents. A terminal would obey control
characters in them: move the cursor, change the title, show one thing and mean another.
"""

import re

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment

from services.common.text import clean

# C0 without tab and line feed, DEL, C1, other line breaks, and changes of the reading direction.
_CONTROLS = re.compile("[\x01-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """The text without control characters; tabs and line feeds stay."""
    return _CONTROLS.sub("", clean(text))


def one_line(text: str) -> str:
    """The text on one line, without control characters; for names and table cells."""
    return " ".join(plain(text).split())


class Plain:
    """Anything that rich can print, made plain after its layout.

    Cleaning the input would not be enough: Markdown, for one, decodes character references.
    """

    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The segments of the layout, made plain."""
        for segment in console.render(self._renderable, options):
            if not segment.control:
                yield Segment(plain(segment.text), segment.style)
