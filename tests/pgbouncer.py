"""PgBouncer in transaction mode in front of the tests' PostgreSQL, where it is installed."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cli.local.ports import free_ports

_CONFIG = """
[databases]
* = host={host} port={port} user={user} password={password}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
auth_type = any
pool_mode = transaction
default_pool_size = {sessions}
unix_socket_dir =
"""
_STARTS_WITHIN = 10.0
_STOPS_WITHIN = 10.0


class PgBouncer:
    """A running pooler; made by `pgbouncer`."""

    def __init__(self, port: int) -> None:
        self._port = port

    def dsn(self, direct_dsn: str) -> str:
        """The address by which a database is reached through the pooler."""
        database = urlsplit(direct_dsn).path
        return f"postgresql://anybody@127.0.0.1:{self._port}{database}?sslmode=disable"


@contextmanager
def pgbouncer(server_dsn: str, folder: Path, *, sessions: int = 5) -> Iterator[PgBouncer]:
    """A pooler for as long as the block lasts; without the program the test is skipped.

    Args:
        server_dsn: a direct address of some database of the server, with name and password.
        folder: an empty one.
        sessions: how many sessions of the server the clients of one database share.
    """
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("PgBouncer is not installed (Debian: apt-get install pgbouncer)")
    server, port = urlsplit(server_dsn), next(free_ports())
    config = folder / "pgbouncer.ini"
    config.write_text(
        _CONFIG.format(
            host=server.hostname,
            port=server.port,
            user=server.username,
            password=server.password,
            listen_port=port,
            sessions=sessions,
        )
    )
    config.chmod(0o600)
    # It refuses to run as root, but reads its settings before it becomes somebody else.
    user = ["--user=nobody"] if os.getuid() == 0 else []
    with (folder / "pgbouncer.log").open("wb") as log:
        process = subprocess.Popen([program, *user, config], stderr=log, stdout=log)
    try:
        _wait_for(port, process)
        yield PgBouncer(port)
    finally:
        process.terminate()
        process.wait(_STOPS_WITHIN)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _STARTS_WITHIN
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    raise RuntimeError("PgBouncer did not start")
