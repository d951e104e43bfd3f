"""Checks the addresses that the services are to listen on, and waits for them."""

import asyncio
import errno
import time
from collections.abc import Mapping

from cli.local.errors import StartError
from services.common.addresses import bind_error

_POLL_SECONDS = 0.1
_LAST_PORT = 65_535


def check_addresses(addresses: Mapping[str, str]) -> None:
    """Return if all addresses, given by the variables that set them, are this machine's.

    Raises:
        StartError: one is not, or no address at all.
    """
    for variable, address in addresses.items():
        host, _, port = address.rpartition(":")
        # The system cannot choose the port, since the other services must know it.
        if not host or not port.isdecimal() or not 0 < int(port) <= _LAST_PORT:
            raise StartError(f"{variable}: must be host:port, such as 127.0.0.1:8050")
        error = bind_error(address)
        if error is not None and error.errno != errno.EADDRINUSE:
            raise StartError(f"{variable}: cannot listen on {address}: {error.strerror}")


async def wait_until_free(addresses: Mapping[str, str], *, patience: float) -> None:
    """Return once all addresses, given by the variables that set them, are free.

    Services whose supervisor was killed take a moment to notice and stop.

    Raises:
        StartError: one is still in use after `patience` seconds.
    """
    deadline = time.monotonic() + patience
    for variable, address in addresses.items():
        while bind_error(address) is not None:
            if time.monotonic() > deadline:
                raise StartError(f"{address} is in use by another program; {variable} sets another")
            await asyncio.sleep(_POLL_SECONDS)
