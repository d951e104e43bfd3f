"""The use cases: embed texts, and list the models."""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from services.common.errors import FieldViolation, InvalidArgumentError
from services.embedding.domain.errors import BatchTooLargeError, InvalidEmbeddingError
from services.embedding.domain.models import BackendState, Fault, ModelSpec, Purpose, Vector
from services.embedding.domain.registry import Registry

_INVISIBLE = frozenset({"Cc", "Cf", "Zl", "Zp", "Zs"})
_HEAD = 100


@dataclass(frozen=True, slots=True)
class EmbedInput:
    """A request to embed texts.

    Attributes:
        model: a model's name; empty for the default.
        texts: what to embed.
        purpose: what the vectors are for.
    """

    model: str
    texts: Sequence[str]
    purpose: Purpose


@dataclass(frozen=True, slots=True)
class Embedded:
    """One vector for each text, and what computed them.

    Attributes:
        spec: the model.
        digest: names its exact weights; empty if the backend does not say.
        vectors: in the order of the texts.
    """

    spec: ModelSpec
    digest: str
    vectors: Sequence[Vector]


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that can be requested, with its present state.

    Attributes:
        spec: the model.
        state: the last known state of its backend.
        default: whether an empty name stands for it.
    """

    spec: ModelSpec
    state: BackendState
    default: bool


class Embedding:
    """Embeds texts with the registered models."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def embed(self, asked: EmbedInput) -> Embedded:
        """The vectors of all texts, or of none.

        Raises:
            InvalidArgumentError: a text is blank.
            UnknownModelError: there is no such model.
            BatchTooLargeError: the model takes fewer texts at once.
            BusyError: too much is waiting already.
            BackendUnavailableError: the backend could not be reached.
            InvalidEmbeddingError: the backend has no usable vector for some of the texts.
        """
        batcher = self._registry.find(asked.model)
        spec = batcher.backend.spec
        if len(asked.texts) > spec.max_batch_size:
            raise BatchTooLargeError(len(asked.texts), spec)
        _refuse_blank(asked.texts)
        outcomes = await batcher.embed(asked.texts, asked.purpose)
        faults = {at: each for at, each in enumerate(outcomes) if isinstance(each, Fault)}
        if faults:
            raise InvalidEmbeddingError(spec, faults)
        vectors = [each for each in outcomes if isinstance(each, Vector)]
        return Embedded(spec, batcher.backend.state.digest, vectors)

    def models(self) -> list[ServedModel]:
        """Every model, sorted by name."""
        backends = [batcher.backend for batcher in self._registry.all()]
        return [
            ServedModel(each.spec, each.state, each.spec.name == self._registry.default)
            for each in backends
        ]


def is_blank(text: str) -> bool:
    """Whether a text has only spaces, controls and invisible format characters."""
    # Most texts have something visible at their beginning. In a long one that does not, each
    # distinct character is looked up only once.
    return _invisible(text[:_HEAD]) and _invisible(set(text[_HEAD:]))


def _invisible(chars: Iterable[str]) -> bool:
    return all(unicodedata.category(char) in _INVISIBLE for char in chars)


def _refuse_blank(texts: Sequence[str]) -> None:
    violations = [
        FieldViolation(f"texts[{index}]", "must not be blank")
        for index, text in enumerate(texts)
        if is_blank(text)
    ]
    if violations:
        named = ", ".join(violation.field for violation in violations[:5])
        raise InvalidArgumentError(f"{named}: must not be blank", violations=violations)
