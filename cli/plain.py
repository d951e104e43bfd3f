"""Text of others, on its way to a terminal.

Names, answers and errors come from people, models and documents. A terminal would act on control
characters among them: move the cursor, change the title, show one thing and mean another.
"""

import re

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment

from services.common.text import clean

# C0 without tab and line feed, DEL, C1, other line breaks, and what turns the reading direction.
_ACTED_ON = re.compile("[\x01-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """The text without what a terminal would act on; tabs and line feeds stay."""
    return _ACTED_ON.sub("", clean(text))


def one_line(text: str) -> str:
    """The same with each run of white space as one space, for names and table cells."""
    return " ".join(plain(text).split())


class Plain:
    """Anything that can be printed, made plain once it is laid out.

    Cleaning what goes in would not do: Markdown, for one, decodes what it is given.
    """

    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """As rich wants it."""
        for segment in console.render(self._renderable, options):
            if not segment.control:
                yield Segment(plain(segment.text), segment.style)
