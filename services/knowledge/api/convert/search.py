"""Questions and hits between wire and domain."""

from collections.abc import Sequence

from chatmind.knowledge.v1 import knowledge_service_pb2, search_pb2

from services.common.convert import canonical_id
from services.common.errors import InvalidArgumentError
from services.common.text import clean
from services.knowledge.api.convert.documents import from_chunk
from services.knowledge.domain.models import DocumentId, KnowledgeBaseId
from services.knowledge.domain.search.search import DEFAULT_TOP_K, Hit, Question

_OFFERED = {search_pb2.SEARCH_MODE_UNSPECIFIED, search_pb2.SEARCH_MODE_VECTOR}


def to_question(request: knowledge_service_pb2.SearchRequest) -> Question:
    """What is asked.

    Raises:
        InvalidArgumentError: the mode is not offered yet.
    """
    if request.mode not in _OFFERED:
        raise InvalidArgumentError.of_field("mode", "only VECTOR is offered yet")
    bases = dict.fromkeys(canonical_id(base_id) for base_id in request.knowledge_base_ids)
    documents = dict.fromkeys(canonical_id(each) for each in request.filter.document_ids)
    return Question(
        base_ids=tuple(map(KnowledgeBaseId, bases)),
        text=clean(request.query),
        top_k=request.top_k if request.HasField("top_k") else DEFAULT_TOP_K,
        min_score=request.min_score if request.HasField("min_score") else None,
        document_ids=tuple(map(DocumentId, documents)),
    )


def from_hits(hits: Sequence[Hit]) -> knowledge_service_pb2.SearchResponse:
    """What was found, on the wire."""
    return knowledge_service_pb2.SearchResponse(
        hits=map(_from_hit, hits), mode=search_pb2.SEARCH_MODE_VECTOR
    )


def _from_hit(hit: Hit) -> search_pb2.Hit:
    return search_pb2.Hit(
        chunk=from_chunk(hit.chunk),
        document_name=hit.document_name,
        score=hit.score,
        vector_rank=hit.vector_rank,
        vector_score=hit.vector_score,
    )
