"""Files that only their owner can read, such as keys and passwords."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

PRIVATE_MODE = 0o600
"""Readable and writable by the owner only."""


def write_private_file(path: Path, content: bytes) -> None:
    """Put a file in place, whole or not at all; it is on disk when this returns.

    At no moment can others read it. A link at `path` is replaced, not followed.

    Raises:
        OSError: the folder does not exist or cannot be written to.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        _create(draft, content)
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise


def _create(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, PRIVATE_MODE)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, PRIVATE_MODE)
        file.write(content)
        file.flush()
        os.fsync(descriptor)
