"""ChatMind as a newcomer runs it: `make run` in a process of its own, driven from outside."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import psutil

from cli.local.ports import free_ports

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent

_READY = re.compile(r"^ready grpc=(\S+) http=(\S+) key=(.+)$")
_START_SECONDS = 120.0
_STOP_SECONDS = 40.0
_CALL_SECONDS = 30.0
_POLL_SECONDS = 0.1

JsonObject: TypeAlias = dict[str, Any]
"""A message as protobuf's JSON; its shape is the contract's."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What `buf curl` made of a call.

    Attributes:
        messages: the responses, one for a unary call.
        status: grpc's code as a number; 0 is OK.
        error: the error as JSON; empty when it went well.
    """

    messages: list[JsonObject]
    status: int
    error: Mapping[str, object]

    @property
    def message(self) -> JsonObject:
        """The one response of a call that went well."""
        assert self.status == 0, self.error
        assert len(self.messages) == 1
        return self.messages[0]


@dataclass(slots=True)
class Installation:
    """One data directory, and the `make run` that serves it.

    Attributes:
        data_dir: the state that survives.
        environment: variables on top of this process's own.
    """

    data_dir: Path
    environment: Mapping[str, str]
    ready_line: str = ""
    grpc: str = ""
    http: str = ""
    key_file: str = ""
    _process: subprocess.Popen[str] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Runs `make run` and waits for its ready line."""
        with (self.data_dir / "run.log").open("a", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                ["make", "--no-print-directory", "run", f"ARGS=--data-dir {self.data_dir}"],
                cwd=ROOT,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_SECONDS
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if match := _READY.match(line.rstrip()):
                self.ready_line = line.rstrip()
                self.grpc, self.http, self.key_file = match.groups()
                return
            assert time.monotonic() < deadline, "no ready line in time"
        self._ended(_STOP_SECONDS)
        raise AssertionError(f"`make run` ended early:\n{self.log()}")

    def interrupt(self) -> int:
        """Ctrl-C: SIGINT to the terminal's process group; gives the exit status."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGINT)
        return self._ended(_STOP_SECONDS)

    def kill_everything(self) -> int:
        """SIGKILL to every process at once; gives how many there were."""
        assert self._process is not None
        victims = self.processes()
        for victim in victims:
            # Some end with their parent, before their turn comes.
            with suppress(psutil.NoSuchProcess):
                victim.kill()
        psutil.wait_procs(victims, timeout=10)
        self._ended(10)
        return len(victims)

    def _ended(self, seconds: float) -> int:
        assert self._process is not None
        status = self._process.wait(seconds)
        if self._process.stdout is not None:
            self._process.stdout.close()
        return status

    def processes(self) -> list[psutil.Process]:
        """`make run` and all that came of it."""
        assert self._process is not None
        top = psutil.Process(self._process.pid)
        return [top, *top.children(recursive=True)]

    def service(self, name: str) -> psutil.Process:
        """The process of one service."""
        wanted = f"services.{name}"
        return next(p for p in self.processes() if wanted in p.cmdline())

    def wait_until_ready(self) -> None:
        """Waits until the gateway says that everything behind it serves."""
        deadline = time.monotonic() + _START_SECONDS
        while not self._is_ready():
            assert time.monotonic() < deadline, "not ready in time"
            time.sleep(_POLL_SECONDS)

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.http}/readyz", timeout=_CALL_SECONDS).is_success
        except httpx.HTTPError:
            return False

    def stop(self) -> None:
        """Ends what still runs, whatever state it is in."""
        if self._process is not None and self._process.poll() is None:
            self.interrupt()

    def log(self) -> str:
        """What `make run` told the person at the terminal."""
        return (self.data_dir / "run.log").read_text(encoding="utf-8")

    @property
    def key(self) -> str:
        """The admin's API key."""
        return Path(self.key_file).read_text(encoding="utf-8").strip()

    def call(self, method: str, request: object, *, key: str | None = None) -> Answer:
        """One call by `buf curl`, as in the README; `key=""` sends none."""
        key = self.key if key is None else key
        headers = ["-H", f"authorization: Bearer {key}"] if key else []
        done = subprocess.run(
            [*self.buf_curl, *headers, "-d", "@-", f"http://{self.grpc}/{method}"],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=_CALL_SECONDS,
            check=False,
        )
        error = json.loads(done.stderr) if done.returncode else {}
        return Answer(list(_objects(done.stdout)), done.returncode // 8, error)

    @contextmanager
    def stream(self, method: str, request: object) -> Iterator[Iterator[JsonObject]]:
        """A server stream by `buf curl`; it is ended with the block."""
        headers = ["-H", f"authorization: Bearer {self.key}"]
        process = subprocess.Popen(
            [*self.buf_curl, *headers, "-d", json.dumps(request), f"http://{self.grpc}/{method}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        try:
            yield _objects_of_lines(process.stdout)
        finally:
            process.kill()
            process.wait(10)
            process.stdout.close()

    @property
    def buf_curl(self) -> list[str]:
        """The command up to the headers."""
        return [str(BIN / "buf"), "curl", "--protocol", "grpc", "--http2-prior-knowledge"]

    def chatmind(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """The `chatmind` command against this installation."""
        return subprocess.run(
            [str(BIN / "chatmind"), *arguments],
            input=stdin,
            env={
                **os.environ,
                "CHATMIND_SERVER": self.grpc,
                "CHATMIND_DATA_DIR": str(self.data_dir),
            },
            capture_output=True,
            text=True,
            timeout=_CALL_SECONDS,
            check=False,
        )


def free_environment() -> dict[str, str]:
    """Listening addresses that nobody uses, in place of the usual ones."""
    ports = free_ports()
    names = ("GATEWAY", "AGENT", "KNOWLEDGE", "EMBEDDING", "GATEWAY_HTTP")
    return {f"CHATMIND_{name}_LISTEN": f"127.0.0.1:{next(ports)}" for name in names}


def _objects(text: str) -> Iterator[JsonObject]:
    return _objects_of_lines(iter(text.splitlines(keepends=True)))


def _objects_of_lines(lines: Iterator[str]) -> Iterator[JsonObject]:
    """JSON objects printed one after another, each as soon as it is whole."""
    pending = ""
    for line in lines:
        pending += line
        if line.startswith("}") or (pending == line and line.rstrip().endswith("}")):
            yield json.loads(pending)
            pending = ""
