"""Keyset page tokens: opaque, authenticated, bound to their list, caller and filter."""

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass

from services.common.errors import FieldViolation, InvalidArgumentError

DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 200

_TAG_BYTES = 16


class InvalidPageTokenError(InvalidArgumentError):
    """The token is not one of this list with this filter."""

    reason = "INVALID_PAGE_TOKEN"


@dataclass(frozen=True, slots=True)
class Page:
    """Which rows of a list to return.

    Attributes:
        size: how many at most, from 1 to `MAX_PAGE_SIZE`.
        after: the sort key of the last row already returned; empty on the first page.
    """

    size: int = DEFAULT_PAGE_SIZE
    after: tuple[str, ...] = ()


def page_size(requested: int) -> int:
    """The size to use: 0 means the default, more than the maximum means the maximum."""
    return min(requested or DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)


class PageTokens:
    """Makes and reads the tokens of one service; all its replicas share the key."""

    def __init__(self, key: bytes) -> None:
        self._key = hashlib.sha256(b"chatmind page token" + key).digest()

    def page(self, *, size: int, token: str, scope: tuple[str, ...]) -> Page:
        """The page that a request asks for.

        Args:
            size: the requested size, as in the contract.
            token: the token of the page before; empty for the first page.
            scope: names the list, the caller and the filter.

        Raises:
            InvalidPageTokenError: the token was not made here for this scope.
        """
        after = self._read(token, scope) if token else ()
        return Page(page_size(size), after)

    def token(self, after: tuple[str, ...], *, scope: tuple[str, ...]) -> str:
        """The token of the page that follows the row with this sort key."""
        payload = json.dumps(after).encode()
        return base64.urlsafe_b64encode(self._tag(payload, scope) + payload).decode()

    def _read(self, token: str, scope: tuple[str, ...]) -> tuple[str, ...]:
        try:
            raw = base64.b64decode(token, altchars=b"-_", validate=True)
        except ValueError:  # binascii.Error is one; text beyond ASCII is another
            raise _invalid() from None
        tag, payload = raw[:_TAG_BYTES], raw[_TAG_BYTES:]
        if not hmac.compare_digest(tag, self._tag(payload, scope)):
            raise _invalid()
        return tuple(str(part) for part in json.loads(payload))

    def _tag(self, payload: bytes, scope: tuple[str, ...]) -> bytes:
        message = json.dumps(scope).encode() + b"\0" + payload
        return hmac.digest(self._key, message, "sha256")[:_TAG_BYTES]


def _invalid() -> InvalidPageTokenError:
    description = "must be the next_page_token of this list with the same filter"
    return InvalidPageTokenError(
        f"page_token: {description}", violations=[FieldViolation("page_token", description)]
    )
