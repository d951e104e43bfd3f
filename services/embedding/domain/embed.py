"""The use cases: embed texts, and tell which models can."""

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
    """What a caller asks.

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
    """What a caller gets: one vector for each text, and what computed them."""

    spec: ModelSpec
    digest: str
    vectors: Sequence[Vector]


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model and how it is now."""

    spec: ModelSpec
    state: BackendState
    default: bool


class Embedding:
    """Embeds with whatever the registry holds."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def embed(self, asked: EmbedInput) -> Embedded:
        """The vectors of all texts, or none.

        Raises:
            InvalidArgumentError: a text is blank.
            UnknownModelError: there is no such model.
            BatchTooLargeError: the model takes fewer texts at once.
            BusyError: too much waits already.
            BackendUnavailableError: the backend could not be asked.
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
    """Whether a text shows nothing: only spaces, controls and invisible format characters."""
    # Nearly every text shows something at once; of one that does not, each character is looked at
    # once however often it comes.
    return _shows_nothing(text[:_HEAD]) and _shows_nothing(set(text[_HEAD:]))


def _shows_nothing(chars: Iterable[str]) -> bool:
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
