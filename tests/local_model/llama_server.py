"""llama.cpp's server in a process of its own, and what it says of its work."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tools.local_model import LocalModel

_START_SECONDS = 120.0
_STOP_SECONDS = 10.0
_POLL_SECONDS = 0.2
_CONTEXT_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class Work:
    """What a server has done since it started.

    Attributes:
        read: tokens of questions that it had to work through; those that it remembered, not.
        read_seconds: how long that took.
        written: tokens of replies.
        written_seconds: how long those took.
    """

    read: float
    read_seconds: float
    written: float
    written_seconds: float

    def told(self) -> str:
        """As a line for people."""
        reading = self.read / max(self.read_seconds, 1e-9)
        writing = self.written / max(self.written_seconds, 1e-9)
        return (
            f"read {self.read:.0f} tokens at {reading:.1f}/s, "
            f"wrote {self.written:.0f} at {writing:.1f}/s"
        )


@dataclass(frozen=True, slots=True)
class LlamaServer:
    """A server that answers.

    Attributes:
        url: its address, without a path.
    """

    url: str

    @property
    def base_url(self) -> str:
        """Where it serves OpenAI's API."""
        return f"{self.url}/v1"

    def work(self) -> Work:
        """What it has done so far, by its own counters."""
        lines = httpx.get(f"{self.url}/metrics").raise_for_status().text.splitlines()
        values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return Work(
            read=float(values["llamacpp:prompt_tokens_total"]),
            read_seconds=float(values["llamacpp:prompt_seconds_total"]),
            written=float(values["llamacpp:tokens_predicted_total"]),
            written_seconds=float(values["llamacpp:tokens_predicted_seconds_total"]),
        )


@contextmanager
def llama_server(
    model: LocalModel, port: int, *, log: Path, template: Path | None = None
) -> Iterator[LlamaServer]:
    """A server of this model, until the block ends.

    Args:
        model: what it serves.
        port: where, on loopback.
        log: takes what it prints.
        template: a chat template in place of the model's own.
    """
    command = [
        str(model.server),
        *("--model", str(model.weights)),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--ctx-size", str(_CONTEXT_TOKENS), "--parallel", "1"),
        *("--jinja", "--metrics", "--no-webui"),
        *(("--chat-template-file", str(template)) if template else ()),
    ]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        server = LlamaServer(f"http://127.0.0.1:{port}")
        _wait_until_loaded(server, process, log=log)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_loaded(server: LlamaServer, process: subprocess.Popen[bytes], *, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not _is_loaded(server):
        told = f"\n{log.read_text(errors='replace')[-2000:]}"
        assert process.poll() is None, f"llama-server ended with {process.returncode}:{told}"
        assert time.monotonic() < deadline, f"the model was not loaded in time:{told}"
        time.sleep(_POLL_SECONDS)


def _is_loaded(server: LlamaServer) -> bool:
    try:
        return httpx.get(f"{server.url}/health").is_success
    except httpx.HTTPError:
        return False
