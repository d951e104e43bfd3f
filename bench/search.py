"""What a search costs through the service, beside its bare SQL and a bare call.

    python -m bench.search [--chunks 10000] [--dimensions 1024] [--rounds 5] [--queries 100]

One base is filled with random unit vectors, and as many chunks again stand beside it in other
bases. Then, in turns: Search through the RPC with query vectors it has seen, the bare SQL of an
exact scan over asyncpg, and the server's health check, which is a call that does nothing. Filling
tells what storing costs beside a bare COPY of the same rows.
"""

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import asyncpg
import numpy as np
from chatmind.knowledge.v1 import knowledge_base_pb2
from chatmind.knowledge.v1 import knowledge_service_pb2 as pb
from grpc_health.v1 import health_pb2

from bench.knowledge import MODEL, Installation, installed, random_unit, told
from services.common.db import Pool, open_pool
from services.common.ids import new_id
from services.knowledge.domain.embedding import Embedded, text_digest, vector
from services.knowledge.domain.ingest.job import IngestedDocument, NewChunk
from services.knowledge.domain.ingest.pieces import Piece
from services.knowledge.domain.models import ChunkId
from services.knowledge.store.postgres.queue import PostgresIngestQueue
from services.knowledge.store.postgres.tables import ChunkTables
from services.knowledge.store.postgres.vectors import register_vectors

BARE_SQL = f"""
SELECT id, document_id, heading_path, text, start_line, end_line, embedding <=> $1 AS distance
FROM knowledge.chunk_{MODEL} WHERE knowledge_base_id = $2 ORDER BY distance LIMIT 10
"""
BARE_TABLE = f"CREATE UNLOGGED TABLE bare (LIKE knowledge.chunk_{MODEL})"
COLUMNS = (
    *("id", "knowledge_base_id", "document_id", "generation", "ordinal", "start_line", "end_line"),
    *("token_count", "truncated", "text_digest", "heading_path", "text", "embedding"),
)
OTHER_BASES = 10


def some_chunks(count: int, dimensions: int, *, seed: str) -> tuple[NewChunk, ...]:
    """Chunks of 900 characters with random unit vectors."""
    filler = "A passage has as many words as it needs to say one thing. " * 16
    return tuple(
        NewChunk(
            ChunkId(new_id()),
            Piece(("Chapter", f"Section {i}"), f"{seed} {i} {filler}"[:900], "", i, i, i, i, 225),
            Embedded(vector(random_unit(f"{seed} {i}", dimensions)), 225, truncated=False),
            text_digest(f"{seed} {i}"),
        )
        for i in range(count)
    )


async def fill(system: Installation, pool: Pool, count: int, dimensions: int) -> tuple[str, float]:
    """A base with so many chunks in one document, and the rows a second it took to store them."""
    base = knowledge_base_pb2.KnowledgeBase(display_name="bench")
    request = pb.CreateKnowledgeBaseRequest(knowledge_base=base)
    base_id = str((await system.call("CreateKnowledgeBase", request)).knowledge_base.id)
    document = pb.CreateDocumentRequest(
        knowledge_base_id=base_id, display_name="all.md", content=b"text"
    )
    await system.call("CreateDocument", document)
    queue = PostgresIngestQueue(pool, ChunkTables())
    job = await queue.claim(lease=300)
    assert job is not None
    result = IngestedDocument("all", {}, "", some_chunks(count, dimensions, seed=base_id))
    began = time.perf_counter()
    await queue.finish(job, result)
    return base_id, count / (time.perf_counter() - began)


async def bare_copy(session: asyncpg.Connection, count: int, dimensions: int) -> float:
    """Rows a second of a COPY of such rows into a table without any index."""
    rows = [
        (
            *(chunk.id, chunk.id, chunk.id, 1, i, i, i, 225, False, chunk.text_digest),
            *(list(chunk.piece.heading_path), chunk.piece.text),
            np.frombuffer(chunk.embedded.vector, dtype=np.float32),
        )
        for i, chunk in enumerate(some_chunks(count, dimensions, seed="bare"))
    ]
    await session.execute(BARE_TABLE.replace("UNLOGGED ", ""))
    await session.execute("ALTER TABLE bare ALTER COLUMN embedding SET STORAGE PLAIN")
    began = time.perf_counter()
    await session.copy_records_to_table("bare", columns=COLUMNS, records=rows)
    rate = count / (time.perf_counter() - began)
    await session.execute("DROP TABLE bare")
    return rate


async def timed(action: Callable[[int], Awaitable[object]], count: int) -> list[float]:
    """Seconds of each of so many runs, one after the other."""
    taken = []
    for i in range(count):
        began = time.perf_counter()
        await action(i)
        taken.append(time.perf_counter() - began)
    return taken


async def measure(*, chunks: int, dimensions: int, rounds: int, queries: int) -> None:
    """Fill, then search in turns with what it is compared to."""
    async with AsyncExitStack() as stack:
        variables = {"CHATMIND_KNOWLEDGE_ROLE": "api"}
        system = await stack.enter_async_context(
            installed(dimensions=dimensions, variables=variables)
        )
        pool = await stack.enter_async_context(
            open_pool(
                system.dsn,
                schema="knowledge",
                application_name="bench",
                on_connect=register_vectors,
            )
        )
        session = await asyncpg.connect(system.dsn)
        stack.push_async_callback(session.close)
        await register_vectors(session)

        base_id, rate = await fill(system, pool, chunks, dimensions)
        for _ in range(OTHER_BASES):
            await fill(system, pool, chunks // OTHER_BASES, dimensions)
        bare_rate = await bare_copy(session, chunks, dimensions)
        await session.execute(f"VACUUM ANALYZE knowledge.chunk_{MODEL}")

        async def search(i: int) -> None:
            request = pb.SearchRequest(
                knowledge_base_ids=[base_id], query=f"question {i % 20}", top_k=10
            )
            assert len((await system.call("Search", request)).hits) == 10

        async def bare(i: int) -> None:
            query = random_unit(f"question {i % 20}", dimensions)
            assert len(await session.fetch(BARE_SQL, query, base_id)) == 10

        async def health(_: int) -> None:
            await system.health.Check(health_pb2.HealthCheckRequest(), timeout=10)

        kept: dict[str, list[float]] = {"search": [], "sql": [], "call": []}
        await timed(search, 20)
        await timed(bare, 20)
        for at in range(rounds):
            kept["search"] += await timed(search, queries)
            kept["sql"] += await timed(bare, queries)
            kept["call"] += await timed(health, queries)
            print(f"round {at + 1} of {rounds}, load {os.getloadavg()[0]:.2f}")
    print(f"\n{chunks} chunks of {dimensions} dimensions in the base, as many in others")
    print(
        f"stored {rate:,.0f} rows/s, bare COPY {bare_rate:,.0f}: {rate / bare_rate:.2f} (goal .60)"
    )
    for label, key in (("Search, known question", "search"), ("bare SQL", "sql"), ("call", "call")):
        print(told(label, kept[key]))
    medians = {key: statistics.median(values) for key, values in kept.items()}
    allowed = medians["sql"] + 1.5 * medians["call"]
    print(f"Search p50 is {medians['search'] / allowed:.2f} of bare SQL + 1.5 calls (goal 1.00)")


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--chunks", type=int, default=10_000)
    parser.add_argument("--dimensions", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--queries", type=int, default=100)
    asyncio.run(measure(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
