"""Serves the HTTP application in the gateway's process, beside gRPC."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from services.common.addresses import parse_address
from services.common.server import ListenError
from services.common.tasks import background_tasks

_BACKLOG = 256
_MOST_CONNECTIONS = 500
_MOST_HEADER_BYTES = 16 * 1024
_REQUEST_SECONDS = 10.0
_KEEP_ALIVE_SECONDS = 5
_GRACE_SECONDS = 3
_POLL = 0.01


@asynccontextmanager
async def serve_http(app: ASGIApp, address: str) -> AsyncIterator[int]:
    """Serve for as long as the block lasts; yields the port.

    Raises:
        ListenError: the address is taken, or not one of this machine's.
    """
    listener = _listen(address)
    server = _Server(
        uvicorn.Config(
            app,
            http=_TimedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=_BACKLOG,
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=_GRACE_SECONDS,
            h11_max_incomplete_event_size=_MOST_HEADER_BYTES,
        )
    )
    async with background_tasks() as tasks:
        serving = tasks.start("http", server.serve(sockets=[listener]))
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(_POLL)
        try:
            yield int(listener.getsockname()[1])
        finally:
            server.should_exit = True
            await serving


def _listen(address: str) -> socket.socket:
    family, host, port = parse_address(address)
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ListenError(f"cannot listen on {address}: {error.strerror}") from error


class _Server(uvicorn.Server):
    """Leaves signals to `main`."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield


class _TimedProtocol(H11Protocol):
    """Closes the connection of a client that does not complete a request in time.

    uvicorn itself waits forever, so a few hundred idle connections would shut everybody out.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """A client has connected."""
        super().connection_made(transport)
        self._check_later(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """A client has gone."""
        self._timer.cancel()
        super().connection_lost(exc)

    def _check_later(self, cycle: object) -> None:
        self._timer = self.loop.call_later(_REQUEST_SECONDS, self._check, cycle)

    def _check(self, cycle: object) -> None:
        """Close the connection if no request was completed since the last check.

        Args:
            cycle: uvicorn's request and response at the last check; None before the first.
        """
        waiting = self.conn.their_state in {h11.IDLE, h11.SEND_BODY}
        if waiting and self.cycle is cycle and (cycle is None or self.cycle.response_complete):
            self.transport.close()
        else:
            self._check_later(self.cycle)
