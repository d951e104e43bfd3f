"""Vectors, the models that make them, and what they are made for."""

import hashlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from services.knowledge.domain.models import EmbeddingSpace

Vector: TypeAlias = "array[float]"
"""Components as 32-bit floats: an eighth of the memory of a list, which counts in ingestion."""

TextDigest: TypeAlias = bytes
"""The 128-bit BLAKE2b of an embedded text: equal digests, equal vectors."""


def vector(components: Iterable[float]) -> Vector:
    """A vector of these components."""
    return array("f", components)


def text_digest(text: str) -> TextDigest:
    """The digest of an embedded text."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Embedded:
    """The vector of one text.

    Attributes:
        vector: of unit length.
        token_count: the text's length in the model's tokens; 0 where unknown.
        truncated: whether the model saw only its beginning.
    """

    vector: Vector
    token_count: int
    truncated: bool


class Purpose(Enum):
    """What a text is embedded for."""

    QUERY = "query"
    DOCUMENT = "document"


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """A model of the embedding service.

    Attributes:
        space: its name and the length of its vectors.
        max_input_tokens: how much of one text it reads.
        max_batch_size: how many texts one call may carry.
        is_default: whether it is the one to use where none is named.
        digest: names the exact weights; empty where unknown.
    """

    space: EmbeddingSpace
    max_input_tokens: int
    max_batch_size: int
    is_default: bool
    digest: str


@dataclass(frozen=True, slots=True)
class EmbeddedBatch:
    """The vectors of some texts, in their order.

    Attributes:
        space: where they belong.
        digest: names the exact weights; empty where unknown.
        embedded: one for each text.
    """

    space: EmbeddingSpace
    digest: str
    embedded: tuple[Embedded, ...]


class NotEmbeddableError(Exception):
    """The model fails on some texts and will fail on them again.

    Attributes:
        indexes: their positions among the texts; empty where that is not known.
    """

    def __init__(self, indexes: Sequence[int]) -> None:
        super().__init__("some texts cannot be embedded")
        self.indexes = tuple(indexes)
