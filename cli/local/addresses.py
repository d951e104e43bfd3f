"""Waits for the addresses that the services are to listen on."""

import asyncio
import errno
import time
from collections.abc import Mapping

from cli.local.errors import StartError
from services.common.addresses import bind_error

_POLL_SECONDS = 0.1
_LAST_PORT = 65_535


async def wait_until_free(addresses: Mapping[str, str], *, patience: float) -> None:
    """Return once all addresses, given by the variables that set them, are free.

    Services whose supervisor was killed take a moment to notice and stop.

    Raises:
        StartError: one is still in use after `patience` seconds, or not one of this machine's.
    """
    deadline = time.monotonic() + patience
    for variable, address in addresses.items():
        while _in_use(address):
            if time.monotonic() > deadline:
                raise StartError(f"{address} is in use by another program; {variable} sets another")
            await asyncio.sleep(_POLL_SECONDS)


def _in_use(address: str) -> bool:
    _check(address)
    error = bind_error(address)
    if error is not None and error.errno != errno.EADDRINUSE:
        raise StartError(f"cannot listen on {address}: {error.strerror}") from error
    return error is not None


def _check(address: str) -> None:
    """The system cannot choose the port, since the other services must know it."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) <= _LAST_PORT:
        raise StartError(f"{address!r} is not an address to listen on, such as 127.0.0.1:8050")
