"""Titles that sessions get from what is said first in them. Pure."""

from dataclasses import dataclass
from typing import Final

from services.agent.domain.hooks.pii.find import Kind
from services.agent.domain.hooks.pii.mask import Masker, Strategy
from services.agent.domain.models import AgentSettings

MASKING_HOOK: Final = "pii_masking"
"""Agents with this hook give their sessions masked titles."""

_TITLE_CHARS: Final = 80
_READ_CHARS: Final = 1000


@dataclass(frozen=True, slots=True)
class Titles:
    """The title of a session, for whichever agent it is with.

    Attributes:
        plain: the beginning of the first line with words.
        masked: the same without personal data of any kind.
    """

    plain: str
    masked: str

    def of(self, settings: AgentSettings) -> str:
        """The one for an agent."""
        masks = any(hook.name == MASKING_HOOK for hook in settings.hooks)
        return self.masked if masks else self.plain


def titles_of(text: str) -> Titles:
    """The titles that a first message makes."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    words = " ".join(line.split())
    masker = Masker(dict.fromkeys(Kind, Strategy.REDACT))
    return Titles(_cut(words), _cut(masker.text(words[:_READ_CHARS])))


def _cut(title: str) -> str:
    if len(title) <= _TITLE_CHARS:
        return title
    return title[: _TITLE_CHARS - 1].rstrip() + "…"
