"""The files of the embedded PostgreSQL: its cluster, passwords, log and locks."""

import asyncio
import fcntl
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cli.local.errors import AlreadyRunningError, StartError
from cli.local.logs import rotate
from services.common.private_file import write_private_file

_POLL = 0.05


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """The files of one embedded PostgreSQL below `root`.

    Attributes:
        root: the folder of ChatMind's local state; created with mode 0700 if absent.
    """

    root: Path

    @property
    def cluster(self) -> Path:
        """PostgreSQL's own data directory."""
        return self.root / "postgres"

    @property
    def log(self) -> Path:
        """The server's log."""
        return self.root / "logs" / "postgres.log"

    def password(self) -> str:
        """The superuser's password, created on first use in a file that only its owner can read.

        Raises:
            StartError: there is a cluster, but its password is gone.
        """
        file = self.root / "postgres.password"
        if not file.exists():
            if self.cluster.exists():
                raise StartError(f"{file} is missing: the database cannot be opened without it")
            _make_password(file)
        return file.read_text(encoding="ascii")

    def owner_password(self) -> str:
        """The password of the role that owns ChatMind's database, created on first use."""
        file = self.root / "chatmind.password"
        if not file.exists():
            _make_password(file)
        return file.read_text(encoding="ascii")

    def open_log(self) -> int:
        """A descriptor that appends to the log; a large log is moved aside first."""
        self.log.parent.mkdir(mode=0o700, exist_ok=True)
        rotate(self.log)
        descriptor = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        if os.geteuid() == 0:  # the directory's owner, if another, must be able to write to it too
            owner = self.root.stat()
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        return descriptor

    def complaint(self, *, since: int) -> str:
        """The first fatal line that the server wrote after the first `since` bytes of its log."""
        with self.log.open("rb") as file:
            file.seek(since)
            lines = file.read().decode("utf-8", errors="replace").splitlines()
        fatal = [line for line in lines if "FATAL:" in line]
        return (fatal or lines[-1:] or ["it wrote nothing"])[0]

    @contextmanager
    def supervised(self) -> Iterator[None]:
        """Be the only supervisor of this directory until the block, or this process, ends.

        Raises:
            AlreadyRunningError: another supervisor is running.
        """
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = _open_lock(self.root / "postgres.lock")
        try:
            if not _try_lock(descriptor):
                raise AlreadyRunningError(f"ChatMind already runs on {self.root}")
            yield
        finally:
            os.close(descriptor)

    async def claim(self) -> int:
        """Lock this directory for a server; an orphaned server is stopped first.

        Returns a descriptor to be inherited by the server. Every server process holds it, so the
        lock is kept as long as any of them lives, even one whose parents were killed. The caller
        closes the descriptor, and limits the wait.
        """
        descriptor = _open_lock(self.root / "postgres.server.lock")
        try:
            asked = False
            while not _try_lock(descriptor):
                asked = asked or self._stop_orphan()
                await asyncio.sleep(_POLL)
            self._forget_dead_server()
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def is_ready(self, pid: int) -> bool:
        """Whether the server with this process id accepts connections."""
        record = self._record()
        return record[:1] == [str(pid)] and record[7:8] == ["ready"]

    def _stop_orphan(self) -> bool:
        """Shut down the server that outlived its supervisor; returns whether there is one."""
        pid = self._recorded_pid()
        if pid is None or not is_server(pid, self.cluster):
            return False
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGINT)
        return True

    def _forget_dead_server(self) -> None:
        """Remove the record of a killed server; its process id may be reused by now."""
        pid = self._recorded_pid()
        if pid is not None and not is_server(pid, self.cluster):
            (self.cluster / "postmaster.pid").unlink()

    def _recorded_pid(self) -> int | None:
        record = self._record()
        return int(record[0]) if record and record[0].isdecimal() else None

    def _record(self) -> list[str]:
        """The lines in which a server records its process id, address and state."""
        try:
            text = (self.cluster / "postmaster.pid").read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        return [line.strip() for line in text.splitlines()]


def _make_password(file: Path) -> None:
    write_private_file(file, secrets.token_urlsafe(24).encode())


def _open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_server(pid: int, cluster: Path) -> bool:
    """Whether process `pid` is a PostgreSQL server over `cluster`, not another with a reused id."""
    if sys.platform != "linux":
        command = ["/bin/ps", "-o", "command=", "-p", str(pid)]
        listing = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        return f"postgres -D {cluster} " in listing.stdout
    process = Path("/proc", str(pid))
    try:
        named = (process / "comm").read_text(encoding="utf-8") == "postgres\n"
        return named and (process / "cwd").samefile(cluster)
    except OSError:
        return False
