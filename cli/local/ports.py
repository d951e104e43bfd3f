"""Free ports on loopback, below those that the system gives to outgoing connections."""

import secrets
import socket
from collections.abc import Iterator

_LOWEST, _HIGHEST = 20_000, 32_767


def free_ports(first: int = 0) -> Iterator[int]:
    """Ports nobody listens on at the moment: from `first` upward, or anywhere if it is 0."""
    start = first or _LOWEST + secrets.randbelow(_HIGHEST - _LOWEST)
    yield from filter(is_free, range(start, max(start, _HIGHEST) + 1))


def is_free(port: int) -> bool:
    """Whether a server could listen on 127.0.0.1 at `port` now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
