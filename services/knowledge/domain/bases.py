"""What can be done with knowledge bases."""

from dataclasses import dataclass
from datetime import UTC, datetime

from services.common.errors import InvalidArgumentError, PermissionDeniedError
from services.common.identity import Identity
from services.common.ids import NewId
from services.common.paging import Listing, Page
from services.knowledge.domain.embedding import EmbeddingModel
from services.knowledge.domain.errors import UnknownEmbeddingModelError, base_not_found
from services.knowledge.domain.ingest.policy import EmbedField
from services.knowledge.domain.listing import cut_listing
from services.knowledge.domain.models import (
    AcceptedRequest,
    BaseChanges,
    BaseSettings,
    BaseType,
    DeletionReceipt,
    KnowledgeBase,
    KnowledgeBaseId,
)
from services.knowledge.domain.ports import BaseStore, Embedder

_NOT_STORED_YET = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class NewBase:
    """A base as its owner wants it.

    Attributes:
        settings: what can be changed later.
        type: what it will hold.
        embedding_model: a model's name; empty for the embedding service's default.
        embed_field: what of a section to embed.
    """

    settings: BaseSettings
    type: BaseType
    embedding_model: str
    embed_field: EmbedField


class KnowledgeBases:
    """Creates, shows, changes and deletes bases, each for those who may."""

    def __init__(self, store: BaseStore, embedder: Embedder, *, new_id: NewId) -> None:
        self._store = store
        self._embedder = embedder
        self._new_id = new_id

    async def create(
        self, wanted: NewBase, *, identity: Identity, request: AcceptedRequest | None
    ) -> KnowledgeBase:
        """Create a base of the caller's.

        Raises:
            InvalidArgumentError: it has no name.
            UnknownEmbeddingModelError: the embedding service has no such model.
            EmbeddingUnavailableError: the embedding service cannot be asked.
            RequestIdReusedError: the request id stands for something else.
        """
        _require_name(wanted.settings.display_name)
        if request is not None:
            made = await self._store.requested_base(request, viewer=identity)
            if made is not None:
                return await self.get(made, identity=identity)
        model = await self._model(wanted.embedding_model, identity)
        base = KnowledgeBase(
            id=KnowledgeBaseId(self._new_id()),
            tenant=identity.tenant,
            owner_user_id=identity.user_id,
            settings=wanted.settings,
            type=wanted.type,
            space=model.space,
            embed_field=wanted.embed_field,
            create_time=_NOT_STORED_YET,
            update_time=_NOT_STORED_YET,
        )
        return await self._store.create_base(base, request=request)

    async def get(self, base_id: KnowledgeBaseId, *, identity: Identity) -> KnowledgeBase:
        """One base.

        Raises:
            NotFoundError: it is unknown to the caller.
        """
        base = await self._store.get_base(base_id, viewer=identity)
        if base is None:
            raise base_not_found(base_id)
        return base

    async def changeable(self, base_id: KnowledgeBaseId, *, identity: Identity) -> KnowledgeBase:
        """One base, if the caller may change it.

        Raises:
            NotFoundError: it is unknown to the caller.
            PermissionDeniedError: the caller may only see it.
        """
        return require_change(await self.get(base_id, identity=identity), identity)

    async def page(
        self, page: Page, *, display_name: str, identity: Identity
    ) -> Listing[KnowledgeBase]:
        """Bases that the caller can see; of exactly that name, where one is given."""
        rows = await self._store.list_bases(
            viewer=identity, display_name=display_name, page=page.with_one_more()
        )
        return cut_listing(rows, size=page.size, weight=_weight)

    async def update(
        self, base_id: KnowledgeBaseId, changes: BaseChanges, *, identity: Identity
    ) -> KnowledgeBase:
        """Change a base's settings.

        Raises:
            InvalidArgumentError: it would have no name.
            NotFoundError: it is unknown to the caller.
            PermissionDeniedError: the caller may only see it.
        """
        if changes.display_name is not None:
            _require_name(changes.display_name)
        await self.changeable(base_id, identity=identity)
        changed = await self._store.update_base(base_id, changes, viewer=identity)
        if changed is None:
            raise base_not_found(base_id)
        return changed

    async def delete(self, base_id: KnowledgeBaseId, *, identity: Identity) -> DeletionReceipt:
        """Delete a base with everything in it.

        Raises:
            NotFoundError: it is unknown to the caller.
            PermissionDeniedError: the caller may only see it.
        """
        await self.changeable(base_id, identity=identity)
        receipt = await self._store.delete_base(base_id, viewer=identity)
        if receipt is None:
            raise base_not_found(base_id)
        return receipt

    async def _model(self, name: str, identity: Identity) -> EmbeddingModel:
        models = await self._embedder.models(identity=identity)
        for model in models:
            if model.space.model == name or (not name and model.is_default):
                return model
        raise UnknownEmbeddingModelError(model=name, known=[each.space.model for each in models])


def require_change(base: KnowledgeBase, identity: Identity) -> KnowledgeBase:
    """The same base, if the user may change it.

    Raises:
        PermissionDeniedError: the user may only see it.
    """
    if not base.changeable_by(identity):
        raise PermissionDeniedError(
            "Only its owner and the tenant's admins may change this knowledge base."
        )
    return base


def _require_name(display_name: str) -> None:
    if not display_name.strip():
        raise InvalidArgumentError.of_field(
            "knowledge_base.display_name", "must not be empty or blank"
        )


def _weight(base: KnowledgeBase) -> int:
    return len(base.settings.description.encode()) + 1024
