"""Text that servers wrote, as a person would see it."""

import re
import unicodedata
from typing import Final

from services.common.text import clean

_KEPT: Final = "\n\t"
# Variation selectors are marks, not formats, but as invisible; whole messages are hidden in them.
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")


def visible(text: str) -> str:
    """The text without what nobody sees: zero-width, bidirectional, tag and control characters."""
    return "".join(
        each
        for each in _SELECTORS.sub("", clean(text))
        if each in _KEPT or unicodedata.category(each) not in {"Cc", "Cf", "Co", "Cn"}
    )
