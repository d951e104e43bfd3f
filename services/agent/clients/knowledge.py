"""The knowledge service, asked on behalf of a user."""

from collections.abc import Mapping, Sequence
from typing import Final

import grpc
from chatmind.knowledge.v1 import (
    knowledge_base_pb2,
    knowledge_service_pb2,
    knowledge_service_pb2_grpc,
    search_pb2,
)

from services.agent.domain.chat import KnowledgeBase, Passage
from services.agent.domain.errors import KnowledgeUnavailableError, unknown
from services.agent.domain.messages import Citation
from services.agent.domain.models import ChunkId, DocumentId, KnowledgeBaseId
from services.common.channel import OutgoingCalls
from services.common.errors import InvalidArgumentError, ServiceError
from services.common.identity import Identity
from services.common.status import RpcFailure, failure_of
from services.common.tasks import task_group

SERVICE: Final = "chatmind.knowledge.v1.KnowledgeService"
IDEMPOTENT_METHODS: Final = ((SERVICE, "GetKnowledgeBase"), (SERVICE, "Search"))
"""What a channel to the service may ask again when it is not reached."""

_REFUSALS: Final = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.OUT_OF_RANGE,
}


class KnowledgeClient:
    """The service; satisfies `ports.Knowledge`."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        calls: OutgoingCalls,
        *,
        deadline_seconds: float = 20.0,
    ) -> None:
        """Asks through a channel.

        Args:
            channel: to the service.
            calls: signs for the audience "knowledge".
            deadline_seconds: how long one call is waited for.
        """
        self._stub = knowledge_service_pb2_grpc.KnowledgeServiceStub(channel)
        self._calls = calls
        self._deadline = deadline_seconds

    async def search(
        self,
        identity: Identity,
        base_ids: Sequence[KnowledgeBaseId],
        *,
        query: str,
        top_k: int,
        min_score: float | None = None,
    ) -> Sequence[Passage]:
        """The passages that answer a question best, best first; at least one base is named.

        Raises:
            NotFoundError: the user does not see one of the bases.
            InvalidArgumentError: the query is too long, or the bases do not go together.
            KnowledgeUnavailableError: the service is down or too slow.
        """
        request = knowledge_service_pb2.SearchRequest(
            knowledge_base_ids=base_ids, query=query, top_k=top_k, min_score=min_score
        )
        try:
            response = await self._stub.Search(
                request, timeout=self._deadline, metadata=self._calls.metadata(identity)
            )
        except grpc.aio.AioRpcError as error:
            raise _translated(failure_of(error)) from error
        return [_passage(hit) for hit in response.hits]

    async def bases(
        self, identity: Identity, base_ids: Sequence[KnowledgeBaseId]
    ) -> Mapping[KnowledgeBaseId, KnowledgeBase]:
        """Those of the named bases that the user sees and that hold documents.

        Raises:
            KnowledgeUnavailableError: the service is down or too slow.
        """
        async with task_group() as group:
            asked = [group.create_task(self._base(identity, each)) for each in base_ids]
        found = [task.result() for task in asked]
        return {base.id: base for base in found if base is not None}

    async def _base(self, identity: Identity, base_id: KnowledgeBaseId) -> KnowledgeBase | None:
        request = knowledge_service_pb2.GetKnowledgeBaseRequest(knowledge_base_id=base_id)
        try:
            response = await self._stub.GetKnowledgeBase(
                request, timeout=self._deadline, metadata=self._calls.metadata(identity)
            )
        except grpc.aio.AioRpcError as error:
            failure = failure_of(error)
            if failure.code in {grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT}:
                return None
            raise _translated(failure) from error
        base = response.knowledge_base
        if base.type == knowledge_base_pb2.KnowledgeBase.TYPE_MEMORY:
            return None
        return KnowledgeBase(KnowledgeBaseId(base.id), base.display_name, base.description)


def _translated(failure: RpcFailure) -> ServiceError:
    if failure.code is grpc.StatusCode.NOT_FOUND:
        return unknown("knowledge_base", failure.metadata.get("id", ""))
    if failure.reason == "EMBEDDING_MODEL_MISMATCH":
        return InvalidArgumentError(
            "These knowledge bases cannot be searched together; search them one at a time."
        )
    if failure.code in _REFUSALS:
        fields = "; ".join(f"{each.field}: {each.description}" for each in failure.violations)
        return InvalidArgumentError(
            f"The knowledge service does not take this search{f': {fields}' if fields else ''}.",
            violations=failure.violations,
        )
    if failure.reason == "EMBEDDING_UNAVAILABLE":
        return KnowledgeUnavailableError("The knowledge bases cannot be searched at the moment.")
    return KnowledgeUnavailableError("The knowledge service is unavailable at the moment.")


def _passage(hit: search_pb2.Hit) -> Passage:
    chunk = hit.chunk
    return Passage(
        text=chunk.text,
        citation=Citation(
            label="",
            knowledge_base_id=KnowledgeBaseId(chunk.knowledge_base_id),
            document_id=DocumentId(chunk.document_id),
            chunk_id=ChunkId(chunk.id),
            document_name=hit.document_name,
            heading_path=tuple(chunk.heading_path),
            start_line=chunk.start_line,
            end_line=chunk.end_line,
            score=hit.score,
        ),
    )
