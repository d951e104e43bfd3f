"""What the service speaks of: models, purposes, vectors and the faults in their place."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NewType, TypeAlias

import numpy as np
from numpy.typing import NDArray

ModelName = NewType("ModelName", str)
"""What callers select a model by, such as `bge-m3`."""

BUNDLED_MODEL = ModelName("use-m3")
"""The model that is always there; tables of its vectors are named after it."""

Floats: TypeAlias = NDArray[np.float32]


class Purpose(Enum):
    """What a text is embedded for."""

    QUERY = "query"
    DOCUMENT = "document"


class BackendKind(Enum):
    """A kind of embedding engine."""

    OLLAMA = "ollama"
    BUNDLED = "bundled"
    OPENAI = "openai"


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model as callers see it.

    Attributes:
        name: selects it.
        kind: the engine that computes its vectors.
        dimensions: numbers in each vector.
        max_input_tokens: how much of one text it reads.
        max_batch_size: how many texts one request may carry.
    """

    name: ModelName
    kind: BackendKind
    dimensions: int
    max_input_tokens: int
    max_batch_size: int


@dataclass(frozen=True, slots=True)
class BackendState:
    """How a backend was when last heard of.

    Attributes:
        ready: it answers and has the model.
        digest: names the exact weights, as `sha256:<hex>`; empty where it does not tell.
    """

    ready: bool
    digest: str = ""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What one call to a backend may carry.

    Attributes:
        max_texts: how many texts.
        max_chars: characters of all texts together; a longer text travels alone.
        alone_above: a text with more characters than this travels alone too.
    """

    max_texts: int
    max_chars: int
    alone_above: int


@dataclass(frozen=True, slots=True)
class Prefixes:
    """What a model wants written before each text, by purpose; empty for most."""

    query: str = ""
    document: str = ""

    def apply(self, texts: Sequence[str], purpose: Purpose) -> list[str]:
        """The texts as the model is to read them."""
        prefix = self.query if purpose is Purpose.QUERY else self.document
        return [prefix + text for text in texts]


@dataclass(frozen=True, slots=True, eq=False)
class Vector:
    """The vector of one text.

    Attributes:
        values: unit length, as many numbers as the model has dimensions.
        token_count: how many tokens were read; 0 where the backend does not tell.
        truncated: the model saw only the beginning of the text.
    """

    values: Floats
    token_count: int = 0
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a text has no vector.

    Attributes:
        expected: what should have come, such as `1024 numbers`.
        received: what came, such as `1023 numbers`.
    """

    expected: str
    received: str


Outcome: TypeAlias = Vector | Fault
"""What became of one text."""
