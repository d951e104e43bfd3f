"""Puts something else in the place of personal data. Pure."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from services.agent.domain.hooks.pii.find import Kind, find
from services.agent.domain.hooks.pii.fold import folded
from services.common.text import Json

_SHOWN: Final = 4
_LETTERS: Final = "abcdefghijklmnop"
_MOST_KEPT: Final = 1000
_MOST_PASSES: Final = 4


class Strategy(Enum):
    """What stands in the place of what was found."""

    REDACT = "redact"
    MASK = "mask"
    HASH = "hash"


@dataclass(slots=True)
class Masker:
    """Masks texts; what it has masked it remembers, as a run shows a text again and again.

    Attributes:
        strategies: what is masked, and how.
        salt: makes hashes differ from those of others.
    """

    strategies: Mapping[Kind, Strategy]
    salt: str = ""
    _known: dict[str, str] = field(default_factory=dict)

    def text(self, text: str) -> str:
        """The text, masked; a masked text stays as it is."""
        masked = self._known.get(text)
        if masked is None:
            masked = self._stable(text)
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            self._known[text] = masked
        return masked

    def aligned(self, text: str) -> str:
        """The text, masked so that all else keeps its place, as it is read piece by piece."""
        return self._stable(text, aligned=True)

    def arguments(self, arguments_json: str) -> str:
        """The arguments of a call, each string and number in them masked; else as a text."""
        try:
            value = json.loads(arguments_json)
            masked = self._value(value)
        except (ValueError, RecursionError):
            return self.text(arguments_json)
        return arguments_json if masked == value else json.dumps(masked, ensure_ascii=False)

    def _value(self, value: Json) -> Json:
        match value:
            case str():
                return self.text(value)
            case bool():
                return value
            case int() | float():
                masked = self.text(str(value))
                return value if masked == str(value) else masked
            case Mapping():
                return {self.text(key): self._value(item) for key, item in value.items()}
            case Sequence():
                return [self._value(item) for item in value]
            case _:
                return value

    def _stable(self, text: str, *, aligned: bool = False) -> str:
        """Masked until nothing more is found: what stood right behind something may be seen now."""
        for _ in range(_MOST_PASSES):
            before, text = text, self._masked(text, aligned=aligned)
            if text == before:
                break
        return text

    def _masked(self, text: str, *, aligned: bool) -> str:
        parts: list[str] = []
        end = 0
        for found in find(text, self.strategies):
            size = found.end - found.start
            masked = self._one(text[found.start : found.end], found.kind)
            parts += [text[end : found.start], masked[:size].ljust(size) if aligned else masked]
            end = found.end
        return "".join([*parts, text[end:]])

    def _one(self, text: str, kind: Kind) -> str:
        match self.strategies[kind]:
            case Strategy.REDACT:
                return f"[{kind.value}]"
            case Strategy.MASK:
                return _starred(text, kind)
            case Strategy.HASH:
                return f"[{kind.value}:{self._digest(text)}]"

    def _digest(self, text: str) -> str:
        """Twelve letters; a digest with digits in it might look like a number."""
        plain = "".join(each for each in folded(text).text.lower() if each.isalnum())
        digest = hashlib.sha256(f"{self.salt}\0{plain}".encode()).hexdigest()[:12]
        return "".join(_LETTERS[int(each, 16)] for each in digest)


def _starred(text: str, kind: Kind) -> str:
    """Stars with the last characters, or of an email the first one and the domain."""
    if kind is Kind.EMAIL:
        local, _, domain = text.partition("@")
        return f"{local[0]}***@{domain}"
    if kind is Kind.API_KEY:
        return "****"
    return "****" + "".join(each for each in text if each.isalnum())[-_SHOWN:]
