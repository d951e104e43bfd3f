"""What can be done with bases, over the store in memory."""

import pytest

from services.common.errors import InvalidArgumentError, NotFoundError, PermissionDeniedError
from services.common.identity import Identity
from services.common.ids import new_id
from services.common.paging import Page
from services.knowledge.domain.bases import KnowledgeBases, NewBase
from services.knowledge.domain.errors import EmbeddingUnavailableError, UnknownEmbeddingModelError
from services.knowledge.domain.ingest.policy import ChunkPolicy, EmbedField
from services.knowledge.domain.models import (
    BaseChanges,
    BaseSettings,
    BaseType,
    EmbeddingSpace,
    KnowledgeBaseId,
    Visibility,
)
from services.knowledge.store.memory.bases import MemoryBases
from services.knowledge.store.memory.state import MemoryState
from tests.contracts.knowledge_stores import ADMIN, ALICE, BOB, STRANGER, a_request
from tests.knowledge.doubles import SPACE, MemoryEmbedder

OTHER = EmbeddingSpace("other", 16)


def a_new_base(
    name: str = "notes", *, model: str = "", visibility: Visibility = Visibility.PRIVATE
) -> NewBase:
    """A base as its owner wants it."""
    settings = BaseSettings(name, "", ChunkPolicy(), visibility)
    return NewBase(settings, BaseType.KNOWLEDGE, model, EmbedField.TITLE)


class Bench:
    """The use cases over an empty store."""

    def __init__(self) -> None:
        self.embedder = MemoryEmbedder(SPACE, OTHER)
        self.bases = KnowledgeBases(MemoryBases(MemoryState()), self.embedder, new_id=new_id)


class TestCreate:
    async def test_takes_the_default_model_unless_one_is_named(self) -> None:
        bases = Bench().bases

        default = await bases.create(a_new_base(), identity=ALICE, request=None)
        named = await bases.create(a_new_base(model="other"), identity=ALICE, request=None)

        assert (default.space, named.space) == (SPACE, OTHER)
        assert (ALICE.tenant, ALICE.user_id) == (default.tenant, default.owner_user_id)

    async def test_an_unknown_model_is_told(self) -> None:
        with pytest.raises(UnknownEmbeddingModelError) as caught:
            await Bench().bases.create(a_new_base(model="none"), identity=ALICE, request=None)

        assert caught.value.known == ("tiny", "other")

    async def test_a_repeated_request_needs_no_embedding_service(self) -> None:
        bench, request = Bench(), a_request("one")
        first = await bench.bases.create(a_new_base(), identity=ALICE, request=request)
        bench.embedder.unavailable = True

        assert first == await bench.bases.create(a_new_base(), identity=ALICE, request=request)
        with pytest.raises(EmbeddingUnavailableError):
            await bench.bases.create(a_new_base(), identity=ALICE, request=None)

    async def test_a_blank_name_is_refused(self) -> None:
        with pytest.raises(InvalidArgumentError):
            await Bench().bases.create(a_new_base(" \t"), identity=ALICE, request=None)


class TestChange:
    @pytest.mark.parametrize("identity", [BOB, ADMIN, STRANGER])
    async def test_a_private_base_is_unknown_to_others(self, identity: Identity) -> None:
        bases = Bench().bases
        base = await bases.create(a_new_base(), identity=ALICE, request=None)

        with pytest.raises(NotFoundError):
            await bases.get(base.id, identity=identity)
        with pytest.raises(NotFoundError):
            await bases.update(base.id, BaseChanges(description="x"), identity=identity)
        with pytest.raises(NotFoundError):
            await bases.delete(base.id, identity=identity)

    async def test_a_shared_one_is_changed_by_owner_and_admin_alone(self) -> None:
        bases = Bench().bases
        wanted = a_new_base(visibility=Visibility.TENANT)
        base = await bases.create(wanted, identity=ALICE, request=None)

        with pytest.raises(PermissionDeniedError):
            await bases.update(base.id, BaseChanges(description="x"), identity=BOB)
        with pytest.raises(PermissionDeniedError):
            await bases.delete(base.id, identity=BOB)
        changed = await bases.update(base.id, BaseChanges(description="x"), identity=ADMIN)
        assert changed.settings.description == "x"
        assert (await bases.delete(base.id, identity=ALICE)).documents == 0

    async def test_a_name_cannot_be_taken_away(self) -> None:
        bases = Bench().bases
        base = await bases.create(a_new_base(), identity=ALICE, request=None)

        with pytest.raises(InvalidArgumentError):
            await bases.update(base.id, BaseChanges(display_name=" "), identity=ALICE)

    async def test_an_unknown_base_is_named(self) -> None:
        base_id = KnowledgeBaseId(new_id())

        with pytest.raises(NotFoundError) as caught:
            await Bench().bases.delete(base_id, identity=ALICE)

        assert caught.value.metadata == {"resource": "knowledge_base", "id": base_id}


class TestPage:
    async def test_tells_whether_there_are_more(self) -> None:
        bases = Bench().bases
        for i in range(3):
            await bases.create(a_new_base(f"{i}"), identity=ALICE, request=None)

        first = await bases.page(Page(2), display_name="", identity=ALICE)
        rest = await bases.page(Page(2, (first.items[-1].id,)), display_name="", identity=ALICE)

        assert (len(first.items), first.more) == (2, True)
        assert (len(rest.items), rest.more) == (1, False)
