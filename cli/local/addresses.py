"""Whether the addresses that the services want are to be had."""

import asyncio
import errno
import socket
import time
from collections.abc import Iterable

from cli.local.errors import StartError

_POLL_SECONDS = 0.1
_LAST_PORT = 65_535


async def wait_until_free(addresses: Iterable[str], *, patience: float) -> None:
    """Returns once all addresses can be listened on.

    Services whose supervisor was killed take a moment to notice and leave.

    Raises:
        StartError: one is still taken after `patience` seconds, or is none of this machine's.
    """
    deadline = time.monotonic() + patience
    for address in addresses:
        while _taken(address):
            if time.monotonic() > deadline:
                raise StartError(f"{address} is in use by another program")
            await asyncio.sleep(_POLL_SECONDS)


def _taken(address: str) -> bool:
    host, port = _parts(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return True
            raise StartError(f"cannot listen on {address}: {error.strerror}") from error
    return False


def _parts(address: str) -> tuple[str, int]:
    """Host and port; the others must know the port, so that it cannot be left to the system."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) <= _LAST_PORT:
        raise StartError(f"{address!r} is no address to listen on, such as 127.0.0.1:8050")
    return host.strip("[]"), int(port)
