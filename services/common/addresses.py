"""Addresses to listen on, written `host:port` or `[host]:port`."""

import socket


def parse_address(address: str) -> tuple[socket.AddressFamily, str, int]:
    """The family, the host without brackets, and the port of an address.

    Raises:
        ValueError: the port is not a number.
    """
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    return family, host.strip("[]"), int(port)


def bind_error(address: str) -> OSError | None:
    """Why no server can listen on an address at this moment; None if one can."""
    family, host, port = parse_address(address)
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # Connections of an earlier server that linger in TIME_WAIT are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
    return None
