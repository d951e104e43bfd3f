"""Pages of lists by keyset, with tokens that are opaque, authenticated and bound to their list.

A token also holds for its caller and filter only. A service makes one `PageTokens`; for each
request of a list, a `PagedList` reads the page to return and makes the token of the next.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from services.common.errors import FieldViolation, InvalidArgumentError
from services.common.identity import Identity

DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 200

ItemT = TypeVar("ItemT")

_TAG_BYTES = 16


class InvalidPageTokenError(InvalidArgumentError):
    """The token does not belong to this list with this filter."""

    reason = "INVALID_PAGE_TOKEN"


@dataclass(frozen=True, slots=True)
class Listing(Generic[ItemT]):
    """The items of one page of a list.

    Attributes:
        items: in the order of the list.
        more: whether another page follows.
    """

    items: Sequence[ItemT]
    more: bool


@dataclass(frozen=True, slots=True)
class Page:
    """Which rows of a list to return.

    Attributes:
        size: how many at most, from 1 to `MAX_PAGE_SIZE`.
        after: the sort key of the last row already returned; empty on the first page.
    """

    size: int = DEFAULT_PAGE_SIZE
    after: tuple[str, ...] = ()

    def with_one_more(self) -> "Page":
        """The same page with room for a row that shows whether another page follows."""
        return Page(self.size + 1, self.after)

    def cut(self, rows: Sequence[ItemT]) -> Listing[ItemT]:
        """The listing of this page, from the rows of `with_one_more`."""
        return Listing(rows[: self.size], more=len(rows) > self.size)


def page_size(requested: int) -> int:
    """The size to use: 0 means the default, more than the maximum means the maximum."""
    return min(requested or DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)


class PageTokens:
    """Makes and reads the page tokens of one service; all its replicas share the key."""

    def __init__(self, key: bytes) -> None:
        self._key = hashlib.sha256(b"chatmind page token" + key).digest()

    def page(self, *, size: int, token: str, scope: tuple[str, ...]) -> Page:
        """The page that a request asks for.

        Args:
            size: the requested size, as in the contract.
            token: came with the previous page; empty for the first page.
            scope: names the list, the caller and the filter.

        Raises:
            InvalidPageTokenError: the token was not made here for this scope.
        """
        after = self._read(token, scope) if token else ()
        return Page(page_size(size), after)

    def token(self, after: tuple[str, ...], *, scope: tuple[str, ...]) -> str:
        """The token of the page after the row with this sort key."""
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


@dataclass(frozen=True, slots=True)
class PagedList:
    """One list, as one caller sees it through one filter.

    Attributes:
        tokens: makes and reads the tokens.
        scope: names the list, the caller and the filter.
    """

    tokens: PageTokens
    scope: tuple[str, ...]

    @classmethod
    def of(cls, tokens: PageTokens, name: str, identity: Identity, *filters: str) -> "PagedList":
        """The list of this name for a caller, narrowed by the filters of the request."""
        return cls(tokens, (name, identity.tenant, identity.user_id, *filters))

    def page(self, size: int, token: str) -> Page:
        """The page that a request asks for.

        Raises:
            InvalidPageTokenError: the token does not belong to this list.
        """
        return self.tokens.page(size=size, token=token, scope=self.scope)

    def next_token(self, listing: Listing[ItemT], key: Callable[[ItemT], object]) -> str:
        """The token of the page after a listing; empty if none follows.

        Args:
            listing: the present page.
            key: gives the sort key of an item.
        """
        if not listing.more:
            return ""
        return self.tokens.token((str(key(listing.items[-1])),), scope=self.scope)


def _invalid() -> InvalidPageTokenError:
    description = "must be the next_page_token of this list with the same filter"
    return InvalidPageTokenError(
        f"page_token: {description}", violations=[FieldViolation("page_token", description)]
    )
