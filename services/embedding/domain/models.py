"""The domain's values: models, purposes, vectors, and the faults in place of vectors."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NewType, TypeAlias

import numpy as np
from numpy.typing import NDArray

ModelName = NewType("ModelName", str)
"""The name by which callers select a model, such as `bge-m3`."""

BUNDLED_MODEL = ModelName("use-m3")
"""The model that is always available; tables of its vectors are named after it."""

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
        name: unique within the service.
        kind: the engine that computes its vectors.
        dimensions: numbers in each vector.
        max_input_tokens: how much of a text it reads; the rest is ignored.
        max_batch_size: how many texts one request may carry.
    """

    name: ModelName
    kind: BackendKind
    dimensions: int
    max_input_tokens: int
    max_batch_size: int


@dataclass(frozen=True, slots=True)
class BackendState:
    """The last known state of a backend.

    Attributes:
        ready: whether it answers and has the model.
        digest: names the exact weights, as `sha256:<hex>`; empty if the backend does not say.
    """

    ready: bool
    digest: str = ""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What one call to a backend may carry.

    Attributes:
        max_texts: how many texts.
        max_chars: characters of all texts together; a longer text is sent alone.
        alone_above: a text with more characters than this is sent alone too.
    """

    max_texts: int
    max_chars: int
    alone_above: int


@dataclass(frozen=True, slots=True)
class Prefixes:
    """What a model expects in front of each text, by purpose; empty for most."""

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
        token_count: how many tokens were read; 0 if the backend does not say.
        truncated: whether only the beginning of the text was read.
    """

    values: Floats
    token_count: int = 0
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a text has no vector.

    Attributes:
        expected: such as `1024 numbers`.
        received: such as `1023 numbers`.
    """

    expected: str
    received: str


Outcome: TypeAlias = Vector | Fault
"""The result for one text."""
