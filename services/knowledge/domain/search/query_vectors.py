"""The vectors of questions, remembered: embedding one costs as much as searching with it."""

from collections import OrderedDict

from services.common.errors import InvalidArgumentError
from services.common.identity import Identity
from services.knowledge.domain.embedding import NotEmbeddableError, Purpose, Vector
from services.knowledge.domain.errors import EmbeddingModelMismatchError
from services.knowledge.domain.models import EmbeddingSpace
from services.knowledge.domain.ports import Embedder


class QueryVectors:
    """Embeds questions, and keeps the vectors of those asked last."""

    def __init__(self, embedder: Embedder, *, capacity: int) -> None:
        self._embedder = embedder
        self._capacity = capacity
        self._kept: OrderedDict[tuple[EmbeddingSpace, str], Vector] = OrderedDict()

    async def vector(self, text: str, *, space: EmbeddingSpace, identity: Identity) -> Vector:
        """The vector of a question in a space.

        Raises:
            EmbeddingModelMismatchError: the model's vectors are of another length by now.
            EmbeddingUnavailableError: the embedding service is away.
            UnknownEmbeddingModelError: it lacks the model by now.
            InvalidArgumentError: the model fails on this text.
        """
        kept = self._kept.pop((space, text), None)
        if kept is None:
            kept = await self._embed(text, space, identity)
        self._kept[space, text] = kept
        while len(self._kept) > self._capacity:
            self._kept.popitem(last=False)
        return kept

    async def _embed(self, text: str, space: EmbeddingSpace, identity: Identity) -> Vector:
        try:
            batch = await self._embedder.embed(
                [text], model=space.model, purpose=Purpose.QUERY, identity=identity
            )
        except NotEmbeddableError as error:
            raise InvalidArgumentError.of_field(
                "query", f"cannot be embedded by {space.model}"
            ) from error
        if batch.space.dimensions != space.dimensions:
            raise EmbeddingModelMismatchError.of_dimensions(space, batch.space.dimensions)
        return batch.embedded[0].vector
