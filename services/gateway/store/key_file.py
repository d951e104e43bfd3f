"""The administrator's key in a file that only its owner can read."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from services.common.errors import ServiceError
from services.gateway.domain.keys import parse

_MODE = 0o600
_MOST_BYTES = 1024


class KeyFileError(ServiceError):
    """The file is not one to keep a key in."""


class PrivateKeyFile:
    """A file of one line, replaced whole or not at all."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> str | None:
        """The key; None where there is no file, or an empty one.

        Raises:
            KeyFileError: it holds something that is no key, or cannot be read.
        """
        try:
            with self._path.open("rb") as file:
                with suppress(OSError):  # a read-only mount keeps the mode it was given
                    os.fchmod(file.fileno(), _MODE)
                text = file.read(_MOST_BYTES).decode(errors="replace").strip()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise KeyFileError(f"{self._path}: {error.strerror}") from error
        if text and parse(text) is None:
            raise KeyFileError(f"{self._path} holds something other than a key; name another file.")
        return text or None

    def write(self, key: str) -> None:
        """Put a key in its place.

        Raises:
            KeyFileError: the folder cannot be written to.
        """
        new = self._path.with_name(f".{self._path.name}.{secrets.token_hex(8)}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            _create(new, f"{key}\n".encode())
            new.replace(self._path)
        except OSError as error:
            with suppress(OSError):
                new.unlink()
            raise KeyFileError(f"{self._path}: {error.strerror}") from error


def _create(path: Path, content: bytes) -> None:
    """Write a new file through to the disk; it is never readable for others, not even at first."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _MODE)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, _MODE)
        file.write(content)
        file.flush()
        os.fsync(descriptor)
