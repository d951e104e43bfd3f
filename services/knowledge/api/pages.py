"""Page tokens of lists, bound to the list, the caller and the filter."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from services.common.identity import Identity
from services.common.paging import Page, PageTokens
from services.knowledge.domain.listing import Listing

ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True)
class PagedList:
    """One list as one caller sees it through one filter.

    Attributes:
        tokens: makes and reads page tokens.
        scope: names list, caller and filter.
    """

    tokens: PageTokens
    scope: tuple[str, ...]

    @classmethod
    def of(cls, tokens: PageTokens, name: str, identity: Identity, *narrowed: str) -> "PagedList":
        """The list of this name, narrowed by what the request says."""
        return cls(tokens, (name, identity.tenant, identity.user_id, *narrowed))

    def page(self, size: int, token: str) -> Page:
        """The page that a request asks for.

        Raises:
            InvalidPageTokenError: the token is not one of this list.
        """
        return self.tokens.page(size=size, token=token, scope=self.scope)

    def next_token(self, found: Listing[ItemT], key: Callable[[ItemT], object]) -> str:
        """The token for what follows; empty if nothing does.

        Args:
            found: the page.
            key: tells what an item is sorted by.
        """
        if not found.more:
            return ""
        return self.tokens.token((str(key(found.items[-1])),), scope=self.scope)
