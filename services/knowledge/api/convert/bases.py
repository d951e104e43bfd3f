"""Knowledge bases between wire and domain."""

from chatmind.knowledge.v1 import knowledge_base_pb2, knowledge_service_pb2
from google.protobuf.field_mask_pb2 import FieldMask

from services.common.convert import from_time, to_paths, to_text
from services.common.errors import InvalidArgumentError
from services.knowledge.domain.bases import NewBase
from services.knowledge.domain.ingest.policy import (
    DEFAULT_MAX_TOKENS,
    DEFAULT_OVERLAP_TOKENS,
    ChunkPolicy,
    EmbedField,
)
from services.knowledge.domain.models import (
    BaseChanges,
    BaseSettings,
    BaseType,
    DeletionReceipt,
    KnowledgeBase,
    Visibility,
)

_CHANGEABLE = ("display_name", "description", "chunking", "visibility")
_TYPES = {
    knowledge_base_pb2.KnowledgeBase.TYPE_UNSPECIFIED: BaseType.KNOWLEDGE,
    knowledge_base_pb2.KnowledgeBase.TYPE_KNOWLEDGE: BaseType.KNOWLEDGE,
    knowledge_base_pb2.KnowledgeBase.TYPE_MEMORY: BaseType.MEMORY,
}
_EMBED_FIELDS = {
    knowledge_base_pb2.EMBED_FIELD_UNSPECIFIED: EmbedField.TITLE_AND_CONTENT,
    knowledge_base_pb2.EMBED_FIELD_TITLE: EmbedField.TITLE,
    knowledge_base_pb2.EMBED_FIELD_TITLE_AND_CONTENT: EmbedField.TITLE_AND_CONTENT,
}
_VISIBILITIES = {
    knowledge_base_pb2.VISIBILITY_UNSPECIFIED: Visibility.PRIVATE,
    knowledge_base_pb2.VISIBILITY_PRIVATE: Visibility.PRIVATE,
    knowledge_base_pb2.VISIBILITY_TENANT: Visibility.TENANT,
}
# Read the other way round, the last key of a value wins: the one that is not UNSPECIFIED.
_FROM_TYPE = {value: key for key, value in _TYPES.items()}
_FROM_EMBED_FIELD = {value: key for key, value in _EMBED_FIELDS.items()}
_FROM_VISIBILITY = {value: key for key, value in _VISIBILITIES.items()}


def to_new_base(base: knowledge_base_pb2.KnowledgeBase) -> NewBase:
    """A base as its owner wants it; output-only fields are ignored.

    Raises:
        InvalidArgumentError: a field is out of its bounds.
    """
    settings = BaseSettings(
        display_name=_name(base),
        description=_description(base),
        chunking=to_policy(base.chunking, field="knowledge_base.chunking"),
        visibility=_VISIBILITIES[base.visibility],
    )
    model = to_text(base.embedding_model, field="knowledge_base.embedding_model", max_bytes=200)
    return NewBase(settings, _TYPES[base.type], model, to_embed_field(base.embed_field))


def to_changes(base: knowledge_base_pb2.KnowledgeBase, mask: FieldMask) -> BaseChanges:
    """The new values of the fields that the mask names.

    Raises:
        InvalidArgumentError: the mask is empty or names what cannot be changed, or a value is out
            of its bounds.
    """
    paths = to_paths(mask, changeable=_CHANGEABLE)
    return BaseChanges(
        display_name=_name(base) if "display_name" in paths else None,
        description=_description(base) if "description" in paths else None,
        chunking=(
            to_policy(base.chunking, field="knowledge_base.chunking")
            if "chunking" in paths
            else None
        ),
        visibility=_VISIBILITIES[base.visibility] if "visibility" in paths else None,
    )


def to_policy(chunking: knowledge_base_pb2.Chunking, *, field: str) -> ChunkPolicy:
    """How documents are cut; what is unset takes the service's default.

    Raises:
        InvalidArgumentError: the overlap is half of a piece or more.
    """
    longest = chunking.max_tokens if chunking.HasField("max_tokens") else DEFAULT_MAX_TOKENS
    overlap = (
        chunking.overlap_tokens if chunking.HasField("overlap_tokens") else DEFAULT_OVERLAP_TOKENS
    )
    if overlap * 2 >= longest:
        raise InvalidArgumentError.of_field(
            f"{field}.overlap_tokens", "must be less than half of max_tokens"
        )
    return ChunkPolicy(longest, overlap)


def to_embed_field(embed_field: knowledge_base_pb2.EmbedField.ValueType) -> EmbedField:
    """What of a section is embedded."""
    return _EMBED_FIELDS[embed_field]


def from_base(base: KnowledgeBase) -> knowledge_base_pb2.KnowledgeBase:
    """A base on the wire."""
    settings = base.settings
    return knowledge_base_pb2.KnowledgeBase(
        id=base.id,
        display_name=settings.display_name,
        description=settings.description,
        type=_FROM_TYPE[base.type],
        embedding_model=base.space.model,
        embedding_dimensions=base.space.dimensions,
        embed_field=_FROM_EMBED_FIELD[base.embed_field],
        chunking=knowledge_base_pb2.Chunking(
            max_tokens=settings.chunking.max_tokens,
            overlap_tokens=settings.chunking.overlap_tokens,
        ),
        visibility=_FROM_VISIBILITY[settings.visibility],
        owner_user_id=base.owner_user_id,
        document_count=base.document_count,
        chunk_count=base.chunk_count,
        create_time=from_time(base.create_time),
        update_time=from_time(base.update_time),
    )


def from_receipt(receipt: DeletionReceipt) -> knowledge_service_pb2.DeletionReceipt:
    """A receipt on the wire."""
    return knowledge_service_pb2.DeletionReceipt(
        documents=receipt.documents,
        chunks=receipt.chunks,
        delete_time=from_time(receipt.delete_time),
    )


def _name(base: knowledge_base_pb2.KnowledgeBase) -> str:
    return to_text(base.display_name, field="knowledge_base.display_name", max_bytes=200)


def _description(base: knowledge_base_pb2.KnowledgeBase) -> str:
    return to_text(base.description, field="knowledge_base.description", max_bytes=4000)
