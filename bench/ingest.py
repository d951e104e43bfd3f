"""What ingestion costs beside the embedding that it needs.

    python -m bench.ingest [--documents 20] [--sections 12] [--rounds 3]

In turns, on one installation with the bundled model: documents are uploaded and waited for until
all are searchable, then the very same texts are embedded by bare calls to the embedding service.
What the former takes longer is reading, cutting, storing and waiting. At last every document is
uploaded again with one section more, which must cost next to nothing.
"""

import argparse
import asyncio
import os
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chatmind.embedding.v1 import embedding_pb2, embedding_service_pb2, embedding_service_pb2_grpc
from chatmind.knowledge.v1 import document_pb2, knowledge_base_pb2
from chatmind.knowledge.v1 import knowledge_service_pb2 as pb

from bench.knowledge import IDENTITY, MAX_MESSAGE_BYTES, Installation, installed
from services.common.channel import OutgoingCalls, open_channel
from services.common.clock import now
from services.common.identity import IdentitySigner, load_signing_key
from services.knowledge.domain.ingest.cutting import CutRequest, cut
from services.knowledge.domain.ingest.policy import ChunkPolicy, EmbedField

if TYPE_CHECKING:
    from chatmind.embedding.v1.embedding_service_pb2_grpc import EmbeddingServiceAsyncStub

BATCH = 32
MODEL = "use-m3"
WORDS = (
    *("gateway", "message", "sequence", "reader", "document", "section", "passage", "heading"),
    *("vector", "search", "service", "database", "transaction", "worker", "lease", "answer"),
    *("question", "stream", "client", "server", "token", "budget", "memory", "request"),
)


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds of one round, and how many chunks it was about."""

    chunks: int
    ingest: float
    embed: float
    again: float


def a_document(sections: int, dice: random.Random) -> str:
    """Markdown of so many sections, each about as long as a piece."""
    parts = []
    for number in range(sections):
        words = [dice.choice(WORDS) for _ in range(110)]
        parts.append(f"# {dice.choice(WORDS)} {number}\n\n{' '.join(words)}.\n")
    return "\n".join(parts)


def texts_of(documents: Sequence[str]) -> list[str]:
    """What is embedded of the documents."""
    policy, field = ChunkPolicy(), EmbedField.TITLE_AND_CONTENT
    cuts = (cut(CutRequest(text.encode(), "a.md", "", policy, field)) for text in documents)
    return [piece.embed_text for document in cuts for piece in document.pieces]


async def a_base(system: Installation) -> str:
    """A new base."""
    base = knowledge_base_pb2.KnowledgeBase(display_name="bench", embedding_model=MODEL)
    request = pb.CreateKnowledgeBaseRequest(knowledge_base=base)
    return str((await system.call("CreateKnowledgeBase", request)).knowledge_base.id)


async def ingested(system: Installation, base_id: str, documents: Sequence[str]) -> float:
    """Seconds until all documents are searchable."""
    began = time.perf_counter()

    async def put(number: int, text: str) -> None:
        request = pb.CreateDocumentRequest(
            knowledge_base_id=base_id, display_name=f"{number}.md", content=text.encode()
        )
        document = (await system.call("CreateDocument", request)).document
        watch = system.stub.WatchDocument(
            pb.WatchDocumentRequest(document_id=document.id),
            metadata=system.calls.metadata(IDENTITY),
        )
        async for response in watch:
            document = response.document
        assert document.state == document_pb2.Document.STATE_READY, document

    await asyncio.gather(*(put(number, text) for number, text in enumerate(documents)))
    return time.perf_counter() - began


class BareEmbedding:
    """Calls to the embedding service as the knowledge service makes them."""

    def __init__(self, stub: "EmbeddingServiceAsyncStub", system: Installation) -> None:
        key = load_signing_key(system.keys / "knowledge/knowledge.pem")
        signer = IdentitySigner("knowledge", key, audience="embedding", clock=now)
        self._stub = stub
        self._calls = OutgoingCalls(signer)

    async def seconds(self, texts: Sequence[str]) -> float:
        """How long the texts take, two batches at a time."""
        batches = [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)]
        began = time.perf_counter()

        async def embed(mine: Sequence[Sequence[str]]) -> None:
            for batch in mine:
                request = embedding_service_pb2.EmbedRequest(
                    model=MODEL, texts=batch, purpose=embedding_pb2.PURPOSE_DOCUMENT
                )
                metadata = self._calls.metadata(IDENTITY)
                await self._stub.Embed(request, metadata=metadata, timeout=300)

        await asyncio.gather(embed(batches[::2]), embed(batches[1::2]))
        return time.perf_counter() - began


async def measure(*, documents: int, sections: int, rounds: int) -> None:
    """Ingest and embed in turns."""
    dice = random.Random(1)
    done: list[Round] = []
    async with (
        installed() as system,
        open_channel(system.embedding, max_message_bytes=MAX_MESSAGE_BYTES) as channel,
    ):
        bare = BareEmbedding(embedding_service_pb2_grpc.EmbeddingServiceStub(channel), system)
        # Loads the model and starts what cuts documents.
        await ingested(system, await a_base(system), [f"warm up {i}" for i in range(4)])
        for at in range(rounds):
            base_id = await a_base(system)
            texts = [a_document(sections, dice) for _ in range(documents)]
            more = [f"{text}\n# one more {n}\n\nA short section.\n" for n, text in enumerate(texts)]
            pieces = texts_of(texts)
            done.append(
                Round(
                    chunks=len(pieces),
                    ingest=await ingested(system, base_id, texts),
                    embed=await bare.seconds(pieces),
                    again=await ingested(system, base_id, more),
                )
            )
            print(
                f"round {at + 1}: {done[-1].chunks / done[-1].ingest:6.1f} chunks/s ingested, "
                f"{done[-1].chunks / done[-1].embed:6.1f} embedded, load {os.getloadavg()[0]:.2f}"
            )
    print(f"\n{documents} documents of {done[0].chunks / documents:.0f} chunks, {rounds} rounds")
    overhead = statistics.median(each.ingest / each.embed for each in done) - 1
    print(f"ingestion takes {overhead:+.0%} beside its embedding (goal +25% with this model)")
    again = statistics.median(each.again / each.ingest for each in done)
    print(f"uploading again with a section more takes {again:.0%} of the first time")


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--documents", type=int, default=20)
    parser.add_argument("--sections", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    asyncio.run(measure(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
