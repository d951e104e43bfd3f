"""EmbeddingService over gRPC."""

from typing import Any, TypeAlias

from chatmind.embedding.v1 import embedding_service_pb2, embedding_service_pb2_grpc
from grpc import aio

from services.embedding.api import convert
from services.embedding.domain.embed import Embedding

SERVICE_NAME = embedding_service_pb2.DESCRIPTOR.services_by_name["EmbeddingService"].full_name

# A string, because grpc's class is generic to type checkers only.
Context: TypeAlias = "aio.ServicerContext[Any, Any]"


class EmbeddingServicer(embedding_service_pb2_grpc.EmbeddingServiceServicer):
    """Answers with what the use cases give."""

    def __init__(self, embedding: Embedding) -> None:
        self._embedding = embedding

    async def Embed(
        self, request: embedding_service_pb2.EmbedRequest, context: Context
    ) -> embedding_service_pb2.EmbedResponse:
        """The vectors of a batch of texts, all or none."""
        return convert.embed_response(await self._embedding.embed(convert.embed_input(request)))

    async def ListModels(
        self, request: embedding_service_pb2.ListModelsRequest, context: Context
    ) -> embedding_service_pb2.ListModelsResponse:
        """The models that can be asked for."""
        return convert.list_models_response(self._embedding.models())
