"""Bases between wire and domain."""

import pytest
from chatmind.knowledge.v1 import knowledge_base_pb2
from google.protobuf.field_mask_pb2 import FieldMask

from services.common.errors import InvalidArgumentError
from services.knowledge.api.convert.bases import from_base, to_changes, to_new_base, to_policy
from services.knowledge.domain.ingest.policy import ChunkPolicy, EmbedField
from services.knowledge.domain.models import BaseChanges, BaseType, Visibility
from tests.contracts.knowledge_stores import a_base

Base = knowledge_base_pb2.KnowledgeBase
Chunking = knowledge_base_pb2.Chunking


class TestToNewBase:
    def test_what_is_unset_has_a_default(self) -> None:
        wanted = to_new_base(Base(display_name="a"))

        assert (wanted.type, wanted.embed_field, wanted.embedding_model) == (
            BaseType.KNOWLEDGE,
            EmbedField.TITLE_AND_CONTENT,
            "",
        )
        assert (wanted.settings.visibility, wanted.settings.chunking) == (
            Visibility.PRIVATE,
            ChunkPolicy(),
        )

    def test_what_is_set_is_taken(self) -> None:
        wanted = to_new_base(
            Base(
                display_name="a",
                type=Base.TYPE_MEMORY,
                embed_field=knowledge_base_pb2.EMBED_FIELD_TITLE,
                visibility=knowledge_base_pb2.VISIBILITY_TENANT,
                chunking=Chunking(max_tokens=40, overlap_tokens=19),
                embedding_model="m",
            )
        )

        assert (wanted.type, wanted.embed_field, wanted.embedding_model) == (
            BaseType.MEMORY,
            EmbedField.TITLE,
            "m",
        )
        assert (wanted.settings.visibility, wanted.settings.chunking) == (
            Visibility.TENANT,
            ChunkPolicy(40, 19),
        )


class TestToChanges:
    def test_takes_only_what_the_mask_names(self) -> None:
        base = Base(display_name="a", description="b")

        changes = to_changes(base, FieldMask(paths=["description", "visibility"]))

        assert changes == BaseChanges(description="b", visibility=Visibility.PRIVATE)

    def test_a_cleared_text_is_a_change(self) -> None:
        assert BaseChanges(description="") == to_changes(Base(), FieldMask(paths=["description"]))

    def test_chunking_without_numbers_is_the_default(self) -> None:
        changes = to_changes(Base(), FieldMask(paths=["chunking"]))

        assert changes == BaseChanges(chunking=ChunkPolicy())

    @pytest.mark.parametrize(
        ("paths", "count"),
        [([], 1), (["id"], 1), (["type", "embed_field", "description"], 2), (["*"], 1)],
    )
    def test_all_that_is_wrong_with_a_mask_is_told(self, paths: list[str], count: int) -> None:
        with pytest.raises(InvalidArgumentError) as caught:
            to_changes(Base(), FieldMask(paths=paths))

        assert ["update_mask"] * count == [each.field for each in caught.value.violations]


class TestToPolicy:
    @pytest.mark.parametrize(
        "chunking", [Chunking(max_tokens=20, overlap_tokens=10), Chunking(overlap_tokens=128)]
    )
    def test_the_overlap_is_less_than_half(self, chunking: Chunking) -> None:
        with pytest.raises(InvalidArgumentError) as caught:
            to_policy(chunking, field="chunking")

        assert caught.value.violations[0].field == "chunking.overlap_tokens"


class TestFromBase:
    @pytest.mark.parametrize("visibility", list(Visibility))
    def test_is_the_way_back(self, visibility: Visibility) -> None:
        base = a_base(visibility=visibility)

        shown = from_base(base)
        wanted = to_new_base(shown)

        assert (base.settings, base.type, base.embed_field) == (
            wanted.settings,
            wanted.type,
            wanted.embed_field,
        )
        assert (base.id, base.space.model, base.space.dimensions, base.owner_user_id) == (
            shown.id,
            shown.embedding_model,
            shown.embedding_dimensions,
            shown.owner_user_id,
        )
