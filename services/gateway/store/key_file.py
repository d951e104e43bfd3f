"""The administrator's key in a file that only its owner can read."""

import os
from contextlib import suppress
from pathlib import Path

from services.common.private_file import PRIVATE_MODE, write_private_file
from services.gateway.domain.errors import KeyFileError
from services.gateway.domain.keys import parse

_MOST_BYTES = 1024


class PrivateKeyFile:
    """A file of one line, replaced whole or not at all."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> str | None:
        """The key; None if the file is missing or empty.

        Raises:
            KeyFileError: the file holds something other than a key, or cannot be read.
        """
        try:
            with self._path.open("rb") as file:
                with suppress(OSError):  # a read-only mount keeps the mode it was given
                    os.fchmod(file.fileno(), PRIVATE_MODE)
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
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_private_file(self._path, f"{key}\n".encode())
        except OSError as error:
            raise KeyFileError(f"{self._path}: {error.strerror}") from error
