"""Log files: their rotation, and their last lines."""

import os
from pathlib import Path

_MOST_BYTES = 32 * 1024 * 1024
_TAIL_LINES = 8
_TAIL_BYTES = 64 * 1024


def rotate(log: Path) -> None:
    """Move a log that has grown large aside, in place of the one moved before it."""
    if log.exists() and log.stat().st_size > _MOST_BYTES:
        log.replace(log.with_name(f"{log.name}.1"))


def tail(log: Path, *, since: int = 0) -> str:
    """The last lines of a log, not counting its first `since` bytes."""
    with log.open("rb") as file:
        file.seek(max(since, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    return "\n".join(lines[-_TAIL_LINES:])
