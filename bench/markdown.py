"""How fast Markdown is read and cut, beside mistletoe's own parse of the same text.

    python -m bench.markdown [FOLDER] [--megabytes 1] [--rounds 5]

The text is made of the Markdown files below FOLDER, ChatMind's own documents if none is named,
repeated up to the wanted size. In turns: mistletoe's whole parse to its syntax tree; reading the
outline alone; reading and cutting, with tokens counted by ChatMind's estimate. Medians, in MB/s.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from mistletoe.block_token import Document

from services.knowledge.domain.ingest.pipeline import chunk_document, prepare
from services.knowledge.domain.ingest.policy import ChunkPolicy
from services.knowledge.domain.ingest.token_estimate import estimate_tokens

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Measure, and print a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT)
    parser.add_argument("--megabytes", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    content = corpus(options.folder, round(options.megabytes * 1e6))
    text = content.decode()
    ways: dict[str, Callable[[], object]] = {
        "mistletoe, whole parse": lambda: Document(text),
        "ChatMind, outline": lambda: prepare(content, name="bench.md"),
        "ChatMind, outline and chunks": lambda: cut(content),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, way in ways.items():
            started = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - started)
    for name, times in seconds.items():
        print(f"{name:30} {len(content) / 1e6 / statistics.median(times):6.2f} MB/s")


def corpus(folder: Path, size: int) -> bytes:
    """About `size` bytes of Markdown from the files below a folder, dependencies left out."""
    files = [
        path
        for path in sorted(folder.rglob("*.md"))
        if not any(p.startswith(".") for p in path.parts)
    ]
    once = b"\n\n".join(path.read_bytes() for path in files if "cases" not in path.parts)
    return b"\n\n".join([once] * max(1, size // max(1, len(once))))


def cut(content: bytes) -> int:
    """Read and cut; gives the number of pieces."""
    document = prepare(content, name="bench.md")
    return len(chunk_document(document, ChunkPolicy(), count_tokens=estimate_tokens))


if __name__ == "__main__":
    main()
