import numpy as np
import pytest
from chatmind.embedding.v1 import embedding_pb2, embedding_service_pb2

from services.common.errors import InvalidArgumentError
from services.embedding.api.convert import from_embedded, from_models, to_embed_input
from services.embedding.domain.embed import Embedded, EmbedInput, ServedModel
from services.embedding.domain.models import BackendKind, BackendState, Purpose, Vector
from tests.embedding.memory_backend import SPEC


class TestEmbedInput:
    @pytest.mark.parametrize("purpose", Purpose)
    def test_every_purpose_of_the_domain_has_its_word_in_the_contract(
        self, purpose: Purpose
    ) -> None:
        request = embedding_service_pb2.EmbedRequest(
            model="m",
            texts=["a", "b"],
            purpose=embedding_pb2.Purpose.Value(f"PURPOSE_{purpose.name}"),
        )

        assert to_embed_input(request) == EmbedInput(model="m", texts=["a", "b"], purpose=purpose)

    @pytest.mark.parametrize("purpose", [0, 99])
    def test_any_other_purpose_is_refused(self, purpose: int) -> None:
        request = embedding_service_pb2.EmbedRequest(texts=["a"])
        request.ParseFromString(request.SerializeToString() + bytes([0x18, purpose]))

        with pytest.raises(InvalidArgumentError) as raised:
            to_embed_input(request)

        assert raised.value.violations[0].field == "purpose"

    def test_no_nul_comes_in(self) -> None:
        request = embedding_service_pb2.EmbedRequest(
            model="m\x00", texts=["a\x00b"], purpose=embedding_pb2.PURPOSE_QUERY
        )

        found = to_embed_input(request)

        assert (found.model, found.texts) == ("m\ufffd", ["a\ufffdb"])


class TestEmbedResponse:
    def test_every_fact_of_a_vector_is_there(self) -> None:
        vector = Vector(np.array([0.6, 0.8], dtype=np.float32), token_count=7, truncated=True)

        response = from_embedded(Embedded(SPEC, "sha256:1", [vector]))

        assert (response.model, response.dimensions, response.digest) == ("toy", 8, "sha256:1")
        (embedding,) = response.embeddings
        assert list(embedding.values) == [np.float32(0.6), np.float32(0.8)]
        assert (embedding.token_count, embedding.truncated) == (7, True)


class TestListModelsResponse:
    @pytest.mark.parametrize("kind", BackendKind)
    def test_every_fact_of_a_model_is_there(self, kind: BackendKind) -> None:
        spec = type(SPEC)(
            name=SPEC.name, kind=kind, dimensions=8, max_input_tokens=100, max_batch_size=50
        )
        served = ServedModel(spec, BackendState(True, "sha256:1"), default=True)

        response = from_models([served])

        assert list(response.models) == [
            embedding_pb2.EmbeddingModel(
                name="toy",
                dimensions=8,
                max_input_tokens=100,
                max_batch_size=50,
                backend=embedding_pb2.EmbeddingModel.Backend.Value(f"BACKEND_{kind.name}"),
                ready=True,
                default=True,
                digest="sha256:1",
            )
        ]
