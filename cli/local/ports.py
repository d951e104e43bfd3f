"""Free ports on loopback, below those that the system assigns to outgoing connections."""

import secrets
from collections.abc import Iterator

from services.common.addresses import bind_error

_LOWEST, _HIGHEST = 20_000, 32_767


def free_ports(first: int = 0) -> Iterator[int]:
    """Ports that are free at the moment: from `first` upward, or from a random one if it is 0."""
    start = first or _LOWEST + secrets.randbelow(_HIGHEST - _LOWEST)
    yield from filter(is_free, range(start, max(start, _HIGHEST) + 1))


def is_free(port: int) -> bool:
    """Whether a server could listen on 127.0.0.1 at `port` now."""
    return bind_error(f"127.0.0.1:{port}") is None
