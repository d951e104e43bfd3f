r"""Mends halves of characters in JSON on its way: `\ud83d` without its other half. Pure.

Servers in JavaScript write them where they cut a text amid an emoji. That is JSON, but no text, and
the SDK's reader takes none of the message: neither the answer nor a list of tools.
"""

import re
from typing import Final

_LOW = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HIGH = rb"\\u[dD][89abAB][0-9a-fA-F]{2}"
# What an escape may still become, a whole pair, what is a half, and any other escape.
_ESCAPE: Final = re.compile(
    rb"(?P<begun>(?:" + _HIGH + rb")?\\(?:u[0-9a-fA-F]{0,3})?\Z|" + _HIGH + rb"\Z)"
    rb"|" + _HIGH + _LOW + rb"|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)
_REPLACEMENT: Final = rb"\ufffd"


class Mender:
    """Mends one body, piece by piece."""

    def __init__(self) -> None:
        self._begun = b""

    def mended(self, piece: bytes) -> bytes:
        """What can be passed on; an escape that the piece breaks off in waits for the next."""
        text, self._begun = self._begun + piece, b""
        return _ESCAPE.sub(self._mended, text) if b"\\" in text else text

    def rest(self) -> bytes:
        """What waits at the end."""
        text, self._begun = self._begun, b""
        return _REPLACEMENT if re.fullmatch(_HIGH, text) else text

    def _mended(self, escape: re.Match[bytes]) -> bytes:
        if escape["begun"]:
            self._begun = escape[0]
            return b""
        return _REPLACEMENT if escape["half"] else escape[0]


def mended(text: bytes) -> bytes:
    """A whole text, mended."""
    mender = Mender()
    return mender.mended(text) + mender.rest()
