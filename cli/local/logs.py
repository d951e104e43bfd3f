"""Log files that do not grow without bound."""

from pathlib import Path

_MOST_BYTES = 32 * 1024 * 1024


def rotate(log: Path) -> None:
    """Move a log that has grown large aside, in place of the one moved before it."""
    if log.exists() and log.stat().st_size > _MOST_BYTES:
        log.replace(log.with_name(f"{log.name}.1"))
