"""Pages of lists: tokens bound to the list, the caller and the filter."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from services.common.identity import Identity
from services.common.paging import Page, PageTokens

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Listing:
    """One list as one caller sees it through one filter.

    Attributes:
        tokens: makes and reads page tokens.
        scope: names list, caller and filter.
    """

    tokens: PageTokens
    scope: tuple[str, ...]

    @classmethod
    def of(cls, tokens: PageTokens, name: str, identity: Identity, *narrowed: str) -> "Listing":
        """The list of this name, narrowed by what the request says."""
        return cls(tokens, (name, identity.tenant, identity.user_id, *narrowed))

    def page(self, size: int, token: str) -> Page:
        """The page that a request asks for.

        Raises:
            InvalidPageTokenError: the token is not one of this list.
        """
        return self.tokens.page(size=size, token=token, scope=self.scope)

    def next_token(self, last: str) -> str:
        """The token for the page after the row with this sort key."""
        return self.tokens.token((last,), scope=self.scope)


def split(rows: Sequence[Item], page: Page) -> tuple[Sequence[Item], bool]:
    """The rows of a page, of which there is one more if another page follows, and whether."""
    return rows[: page.size], len(rows) > page.size
