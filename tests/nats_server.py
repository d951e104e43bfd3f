"""A real NATS server as a child process, which tests may kill and start again."""

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from cli.local.ports import free_ports

_PROGRAM = Path(sys.executable).parent / "nats-server"
_START_SECONDS = 20.0


class NatsServer:
    """One server at one port; made by `running_nats`.

    Attributes:
        port: where clients connect, across restarts.
    """

    def __init__(self, options: Sequence[str]) -> None:
        self.port = next(free_ports())
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where clients connect, as `host:port`."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The same as a client is told it, without credentials."""
        return f"nats://{self.address}"

    async def start(self) -> None:
        """Start the server, and return once it answers."""
        self._process = subprocess.Popen(  # noqa: ASYNC220 - waiting for it is not left to a loop
            [_PROGRAM, "--addr", "127.0.0.1", "--port", str(self.port), *self._options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        async with asyncio.timeout(_START_SECONDS):
            while not self._answers():
                assert self._process.poll() is None, "nats-server ended at once"
                await asyncio.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL: clients learn of it from their system alone."""
        self.send(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(10)

    def send(self, signum: signal.Signals) -> None:
        """Send the process a signal, such as SIGSTOP."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signum)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@asynccontextmanager
async def running_nats(*options: str) -> AsyncIterator[NatsServer]:
    """A server for as long as the block lasts.

    Args:
        options: further ones of its command line.
    """
    server = NatsServer(options)
    await server.start()
    try:
        yield server
    finally:
        server.kill()
