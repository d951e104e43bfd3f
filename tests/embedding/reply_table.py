"""The replies of tests/cases/15-embed-reply-checks, played to a backend by a real HTTP server."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from services.embedding.domain.errors import InvalidEmbeddingError
from services.embedding.domain.isolation import embed_each
from services.embedding.domain.models import Fault, Purpose, Vector
from services.embedding.domain.ports import Backend

CASE = Path(__file__).parents[1] / "cases/15-embed-reply-checks"
_TABLE: dict[str, Any] = json.loads((CASE / "replies.json").read_text())
_EXPECTED: dict[str, Any] = json.loads((CASE / "expected.json").read_text())

DIMENSIONS: int = _TABLE["configured_dimensions"]


@dataclass(frozen=True, slots=True)
class Item:
    """A row of the table: what is asked, what the engine replies, and what is right then."""

    name: str
    texts: list[str]
    reply: object
    want: Any
    message_mentions: list[str]

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


def items(path_prefix: str) -> list[Item]:
    """The rows whose path begins so."""
    rows = [row for row in _TABLE["items"] if row["path"].startswith(path_prefix)]
    assert rows
    return [
        Item(
            row["name"],
            row["texts"],
            row["reply"],
            _EXPECTED[row["name"]]["want"],
            _EXPECTED[row["name"]].get("message_mentions", []),
        )
        for row in rows
    ]


async def judge(backend: Backend, item: Item) -> None:
    """Asks the backend, whose engine gives the item's reply, and looks at what it makes of it."""
    found = await embed_each(backend, item.texts, purpose=Purpose.DOCUMENT)
    if item.want == "error":
        faults = {at: each for at, each in enumerate(found) if isinstance(each, Fault)}
        message = InvalidEmbeddingError(backend.spec, faults).message
        for fact in (backend.spec.name, "expected", "received", *item.message_mentions):
            assert fact in message
        return
    for text, outcome in zip(item.texts, found, strict=True):
        assert isinstance(outcome, Vector)
        assert np.allclose(outcome.values, item.want[text])
