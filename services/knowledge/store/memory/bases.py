"""Knowledge bases in memory."""

from collections.abc import Sequence
from dataclasses import replace

from services.common.identity import Identity
from services.common.paging import Page
from services.knowledge.domain.errors import base_not_found
from services.knowledge.domain.models import (
    AcceptedRequest,
    BaseChanges,
    BaseSettings,
    DeletionReceipt,
    KnowledgeBase,
    KnowledgeBaseId,
)
from services.knowledge.store.memory.state import MemoryState


class MemoryBases:
    """`BaseStore` in memory; the methods are explained there."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def create_base(
        self, base: KnowledgeBase, *, request: AcceptedRequest | None
    ) -> KnowledgeBase:
        owner = Identity(base.tenant, base.owner_user_id)
        if request is not None:
            made = self._state.find_request(request, viewer=owner)
            if made is not None:
                return self._made_before(KnowledgeBaseId(made), owner)
            self._state.record_request(request, base.id, viewer=owner)
        now = self._state.clock()
        self._state.bases[base.id] = replace(base, create_time=now, update_time=now)
        return self._state.bases[base.id]

    async def requested_base(
        self, request: AcceptedRequest, *, viewer: Identity
    ) -> KnowledgeBaseId | None:
        made = self._state.find_request(request, viewer=viewer)
        return None if made is None else KnowledgeBaseId(made)

    async def get_base(self, base_id: KnowledgeBaseId, *, viewer: Identity) -> KnowledgeBase | None:
        return self._state.base(base_id, viewer=viewer)

    async def get_bases(
        self, base_ids: Sequence[KnowledgeBaseId], *, viewer: Identity
    ) -> list[KnowledgeBase]:
        seen = (self._state.base(base_id, viewer=viewer) for base_id in base_ids)
        return [base for base in seen if base is not None]

    async def list_bases(
        self, *, viewer: Identity, display_name: str, page: Page
    ) -> list[KnowledgeBase]:
        after = page.after[0] if page.after else ""
        seen = (self._state.base(each, viewer=viewer) for each in sorted(self._state.bases))
        wanted = [
            base
            for base in seen
            if base and base.id > after and display_name in {"", base.settings.display_name}
        ]
        return wanted[: page.size]

    async def update_base(
        self, base_id: KnowledgeBaseId, changes: BaseChanges, *, viewer: Identity
    ) -> KnowledgeBase | None:
        base = self._state.bases.get(base_id)
        if base is None or not base.changeable_by(viewer):
            return None
        self._state.bases[base_id] = replace(
            base, settings=_changed(base.settings, changes), update_time=self._state.clock()
        )
        return self._state.base(base_id, viewer=viewer)

    async def delete_base(
        self, base_id: KnowledgeBaseId, *, viewer: Identity
    ) -> DeletionReceipt | None:
        base = self._state.base(base_id, viewer=viewer)
        if base is None or not base.changeable_by(viewer):
            return None
        for stored in list(self._state.stored_in(base_id)):
            del self._state.documents[stored.document.id]
        del self._state.bases[base_id]
        return DeletionReceipt(base.document_count, base.chunk_count, self._state.clock())

    def _made_before(self, base_id: KnowledgeBaseId, owner: Identity) -> KnowledgeBase:
        base = self._state.base(base_id, viewer=owner)
        if base is None:
            raise base_not_found(base_id)
        return base


def _changed(settings: BaseSettings, changes: BaseChanges) -> BaseSettings:
    description = changes.description
    return BaseSettings(
        display_name=changes.display_name or settings.display_name,
        description=settings.description if description is None else description,
        chunking=changes.chunking or settings.chunking,
        visibility=changes.visibility or settings.visibility,
    )
