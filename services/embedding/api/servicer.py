"""EmbeddingService over gRPC."""

from chatmind.embedding.v1 import embedding_service_pb2, embedding_service_pb2_grpc

from services.common.interceptors.base import Context
from services.embedding.api import convert
from services.embedding.domain.embed import Embedding

SERVICE_NAME = embedding_service_pb2.DESCRIPTOR.services_by_name["EmbeddingService"].full_name


class EmbeddingServicer(embedding_service_pb2_grpc.EmbeddingServiceServicer):
    """Answers the methods of EmbeddingService."""

    def __init__(self, embedding: Embedding) -> None:
        self._embedding = embedding

    async def Embed(
        self, request: embedding_service_pb2.EmbedRequest, context: Context
    ) -> embedding_service_pb2.EmbedResponse:
        """Embed a batch of texts, all or none."""
        return convert.from_embedded(await self._embedding.embed(convert.to_embed_input(request)))

    async def ListModels(
        self, request: embedding_service_pb2.ListModelsRequest, context: Context
    ) -> embedding_service_pb2.ListModelsResponse:
        """List the models that can be requested."""
        return convert.from_models(self._embedding.models())
