"""A knowledge service as a process, over a database of its own: what its measurements share."""

import asyncio
import hashlib
import os
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from chatmind.embedding.v1 import embedding_pb2, embedding_service_pb2, embedding_service_pb2_grpc
from chatmind.knowledge.v1.knowledge_service_pb2_grpc import KnowledgeServiceStub
from grpc import aio
from grpc_health.v1 import health_pb2

from cli.local.identity_keys import ensure_identity_keys
from cli.local.ports import free_ports
from cli.local.postgres import EmbeddedPostgres
from services.common.channel import OutgoingCalls, open_channel
from services.common.clock import now
from services.common.identity import Identity, IdentitySigner, load_signing_key
from tests.calls import Health, health_of

if TYPE_CHECKING:
    from chatmind.knowledge.v1.knowledge_service_pb2_grpc import KnowledgeServiceAsyncStub

ROOT = Path(__file__).parents[1]
MAX_MESSAGE_BYTES = 20 * 1024 * 1024
IDENTITY = Identity(tenant="bench", user_id="bench")
MODEL = "random"
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}


@dataclass(frozen=True, slots=True)
class Installation:
    """What a measurement needs.

    Attributes:
        dsn: the database's address.
        stub: of the service.
        health: of the same server, for what a bare call costs.
        calls: makes the metadata of calls.
        embedding: where the embedding service listens.
        keys: where the services' keys are.
    """

    dsn: str
    stub: "KnowledgeServiceAsyncStub"
    health: Health
    calls: OutgoingCalls
    embedding: str
    keys: Path

    async def call(self, method: str, request: Any) -> Any:
        """The answer of a unary method."""
        rpc = getattr(self.stub, method)
        return await rpc(request, metadata=self.calls.metadata(IDENTITY), timeout=300)


class RandomEmbedding(embedding_service_pb2_grpc.EmbeddingServiceServicer):
    """An encoder that costs nothing: a random unit vector for each text, always the same one."""

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions

    async def ListModels(self, _: Any, __: Any) -> Any:  # noqa: N802 - by contract
        """The one model."""
        model = embedding_pb2.EmbeddingModel(
            name=MODEL,
            dimensions=self._dimensions,
            max_input_tokens=8192,
            max_batch_size=256,
            default=True,
            ready=True,
        )
        return embedding_service_pb2.ListModelsResponse(models=[model])

    async def Embed(self, request: Any, _: Any) -> Any:  # noqa: N802 - by contract
        """The vectors."""
        embeddings = [
            embedding_pb2.Embedding(values=random_unit(text, self._dimensions))
            for text in request.texts
        ]
        return embedding_service_pb2.EmbedResponse(
            model=MODEL, dimensions=self._dimensions, embeddings=embeddings
        )


def random_unit(text: str, dimensions: int) -> "np.ndarray[Any, np.dtype[np.float32]]":
    """A unit vector that only the text decides."""
    seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
    vector = np.random.default_rng(seed).standard_normal(dimensions, dtype=np.float32)
    return vector / np.linalg.norm(vector)


@asynccontextmanager
async def installed(
    *, dimensions: int = 0, variables: dict[str, str] | None = None
) -> AsyncIterator[Installation]:
    """A service with what stands behind it.

    Args:
        dimensions: of an encoder that costs nothing; 0 for the embedding service with its bundled
            model.
        variables: further environment of the knowledge service.
    """
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ensure_identity_keys(folder / "keys")
        postgres = await stack.enter_async_context(EmbeddedPostgres(folder / "data"))
        dsn = postgres.dsn("postgres")
        if dimensions:
            embedding = await _random_embedding(dimensions, stack)
        else:
            embedding = await _start("embedding", folder, stack, _BUNDLED)
        given = {
            "CHATMIND_DATABASE_URL": dsn,
            "CHATMIND_KNOWLEDGE_EMBEDDING_ADDRESS": embedding,
            **(variables or {}),
        }
        address = await _start("knowledge", folder, stack, given)
        channel = await stack.enter_async_context(
            open_channel(address, max_message_bytes=MAX_MESSAGE_BYTES)
        )
        health = health_of(channel)
        await health.Check(health_pb2.HealthCheckRequest(), timeout=60, wait_for_ready=True)
        key = load_signing_key(folder / "keys/gateway/gateway.pem")
        signer = IdentitySigner("gateway", key, audience="knowledge", clock=now)
        calls = OutgoingCalls(signer)
        yield Installation(
            dsn, KnowledgeServiceStub(channel), health, calls, embedding, folder / "keys"
        )


_BUNDLED = {"CHATMIND_EMBEDDING_BACKEND": "bundled"}


async def _random_embedding(dimensions: int, stack: AsyncExitStack) -> str:
    server = aio.server(options=[("grpc.max_send_message_length", MAX_MESSAGE_BYTES)])
    embedding_service_pb2_grpc.add_EmbeddingServiceServicer_to_server(
        RandomEmbedding(dimensions), server
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    stack.push_async_callback(server.stop, 0)
    return f"127.0.0.1:{port}"


async def _start(name: str, folder: Path, stack: AsyncExitStack, variables: dict[str, str]) -> str:
    address = f"127.0.0.1:{next(free_ports())}"
    prefix = f"CHATMIND_{name.upper()}"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"services.{name}"),
        cwd=ROOT,
        env={
            **os.environ,
            **_ONE_THREAD,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "gen")]),
            "GRPC_VERBOSITY": "NONE",
            f"{prefix}_LISTEN": address,
            f"{prefix}_IDENTITY_DIR": str(folder / "keys" / name),
            f"{prefix}_LOG_LEVEL": "warning",
            f"{prefix}_DRAIN_SECONDS": "0",
            **variables,
        },
    )

    async def end() -> None:
        process.terminate()
        await process.wait()

    stack.push_async_callback(end)
    return address


def told(label: str, seconds: Sequence[float]) -> str:
    """The median and the tail of some durations."""
    ordered = sorted(seconds)
    p99 = ordered[int(0.99 * (len(ordered) - 1))]
    return f"{label:<30} p50 {1000 * statistics.median(ordered):7.2f}   p99 {1000 * p99:7.2f} ms"
