"""Connections to NATS that end when they are lost, rather than mend themselves unseen."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import NoReturn
from urllib.parse import unquote, urlsplit

from nats.aio.client import Client
from nats.errors import Error

from services.common.bus.keeping import watched_by
from services.common.errors import UnavailableError

ANSWER_TIMEOUT = 5
"""Seconds in which a server that is alive answers."""

_CONNECT_TIMEOUT = 5.0
_CHECK = 10.0
_CLOSE_GRACE = 1.0


@asynccontextmanager
async def open_client(url: str, *, name: str) -> AsyncIterator[Client]:
    """A connection for as long as the block lasts; the block ends early if it is lost.

    Args:
        url: the servers' addresses, separated by commas; one is tried after the other. Credentials
            in the first that has any hold for all.
        name: shown in the server's monitoring.

    Raises:
        UnavailableError: no server can be reached, all refuse us, or the connection was lost.
    """
    client = Client()
    loss: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
    try:
        with _translated():
            async with asyncio.timeout(_CONNECT_TIMEOUT):
                await _connect(client, url, loss, name=name)
            async with watched_by(_fail_when_lost(loss), _fail_when_silent(client)):
                yield client
    finally:
        with suppress(Error, OSError):
            async with asyncio.timeout(_CLOSE_GRACE):
                await client.close()


async def _connect(
    client: Client, url: str, loss: "asyncio.Future[Exception]", *, name: str
) -> None:
    """Connect to any of the servers; `loss` will tell why the connection is of no use any more."""

    async def failed(error: Exception) -> None:
        # A server that forbids a subject, or drops what we are slow to read, leaves us as deaf as
        # one that is gone. While still connecting, the next server may do.
        if client.is_connected and not loss.done():
            loss.set_result(error)

    async def closed() -> None:
        if not loss.done():
            loss.set_result(client.last_error or ConnectionError("the connection was closed"))

    login = _login(url)
    await client.connect(
        url.split(","),
        user=login.user,
        password=login.password,
        token=login.token,
        name=name,
        error_cb=failed,
        closed_cb=closed,
        allow_reconnect=False,
        connect_timeout=2,
        reconnect_time_wait=0,
        max_reconnect_attempts=1,
        # Where its own bounds are reached the client waits inside a command, and a cancellation
        # is swallowed there. The outbox has the bound, so none is needed here.
        pending_size=0,
        flusher_queue_size=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Login:
    user: str | None = None
    password: str | None = None
    token: str | None = None


def _login(url: str) -> _Login:
    for address in map(urlsplit, url.split(",")):
        if address.username and address.password:
            return _Login(user=unquote(address.username), password=unquote(address.password))
        if address.username:
            return _Login(token=unquote(address.username))
    return _Login()


async def _fail_when_lost(loss: "asyncio.Future[Exception]") -> NoReturn:
    raise await loss


async def _fail_when_silent(client: Client) -> NoReturn:
    while True:
        await asyncio.sleep(_CHECK)
        await client.rtt(timeout=ANSWER_TIMEOUT)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (Error, OSError) as error:
        raise UnavailableError("The message bus cannot be reached.", retry_after=1.0) from error
