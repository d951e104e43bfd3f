"""Pages of lists, and their tokens."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.common.errors import FieldViolation
from services.common.identity import Identity
from services.common.paging import (
    DEFAULT_PAGE_SIZE,
    MAX_PAGE_SIZE,
    InvalidPageTokenError,
    Listing,
    Page,
    PagedList,
    PageTokens,
    page_size,
)

SCOPE = ("agents", "acme", "ada", "")
TOKENS = PageTokens(b"key")
TEXTS = st.lists(st.text(st.characters(exclude_categories=()))).map(tuple)


class TestPageSize:
    @pytest.mark.parametrize(
        ("requested", "expected"),
        [(0, DEFAULT_PAGE_SIZE), (1, 1), (200, 200), (201, MAX_PAGE_SIZE), (2**31, MAX_PAGE_SIZE)],
    )
    def test_none_means_the_default_and_too_much_the_maximum(
        self, requested: int, expected: int
    ) -> None:
        assert page_size(requested) == expected


class TestPage:
    def test_a_row_more_than_fits_shows_that_another_page_follows(self) -> None:
        page = Page(2, ("7",))

        assert page.with_one_more() == Page(3, ("7",))
        assert page.cut([8, 9, 10]) == Listing([8, 9], more=True)
        assert page.cut([8, 9]) == Listing([8, 9], more=False)


class TestPagedList:
    def test_the_token_of_a_page_asks_for_the_next(self) -> None:
        paged = PagedList.of(TOKENS, "agents", Identity("acme", "ada"), "name")
        token = paged.next_token(Listing([3, 4], more=True), lambda item: item)

        assert paged.page(5, token) == Page(5, ("4",))

    def test_the_last_page_has_no_token(self) -> None:
        paged = PagedList.of(TOKENS, "agents", Identity("acme", "ada"))

        assert paged.next_token(Listing([3, 4], more=False), lambda item: item) == ""

    @pytest.mark.parametrize(
        ("name", "identity", "filters"),
        [
            ("runs", Identity("acme", "ada"), ("name",)),
            ("agents", Identity("evil", "ada"), ("name",)),
            ("agents", Identity("acme", "bob"), ("name",)),
            ("agents", Identity("acme", "ada"), ()),
        ],
    )
    def test_a_token_of_another_list_caller_or_filter_is_refused(
        self, name: str, identity: Identity, filters: tuple[str, ...]
    ) -> None:
        paged = PagedList.of(TOKENS, "agents", Identity("acme", "ada"), "name")
        token = paged.next_token(Listing([1], more=True), lambda item: item)

        with pytest.raises(InvalidPageTokenError):
            PagedList.of(TOKENS, name, identity, *filters).page(1, token)


class TestPageTokens:
    def test_without_a_token_a_list_begins_at_its_start(self) -> None:
        assert TOKENS.page(size=0, token="", scope=SCOPE) == Page(DEFAULT_PAGE_SIZE, ())

    @given(TEXTS, TEXTS)
    def test_a_token_gives_back_the_key_it_was_made_of(
        self, after: tuple[str, ...], scope: tuple[str, ...]
    ) -> None:
        token = TOKENS.token(after, scope=scope)

        assert TOKENS.page(size=7, token=token, scope=scope) == Page(7, after)

    def test_a_token_tells_nothing_that_is_not_plain_ascii(self) -> None:
        token = TOKENS.token(("中文", "a/b?c"), scope=SCOPE)

        assert token.replace("-", "a").replace("_", "a").rstrip("=").isalnum()

    @pytest.mark.parametrize(
        "scope",
        [
            ("sessions", "acme", "ada", ""),
            ("agents", "evil", "ada", ""),
            ("agents", "acme", "bob", ""),
            ("agents", "acme", "ada", "name"),
            ("agents", "acme", "ada"),
            ("agents", "acme", 'ada", "', ""),
            (),
        ],
    )
    def test_a_token_holds_for_its_list_caller_and_filter_alone(
        self, scope: tuple[str, ...]
    ) -> None:
        token = TOKENS.token(("1",), scope=SCOPE)

        with pytest.raises(InvalidPageTokenError):
            TOKENS.page(size=1, token=token, scope=scope)

    def test_replicas_share_tokens_and_strangers_do_not(self) -> None:
        token = TOKENS.token(("1",), scope=SCOPE)

        assert PageTokens(b"key").page(size=1, token=token, scope=SCOPE) == Page(1, ("1",))
        with pytest.raises(InvalidPageTokenError):
            PageTokens(b"other key").page(size=1, token=token, scope=SCOPE)

    @given(st.text(st.characters(exclude_categories=()), min_size=1))
    def test_any_other_text_is_refused_as_a_field(self, token: str) -> None:
        with pytest.raises(InvalidPageTokenError) as caught:
            TOKENS.page(size=1, token=token, scope=SCOPE)

        assert caught.value.violations == (
            FieldViolation(
                "page_token", "must be the next_page_token of this list with the same filter"
            ),
        )

    @given(st.data())
    def test_a_token_that_was_tampered_with_is_refused(self, data: st.DataObject) -> None:
        raw = bytearray(base64.urlsafe_b64decode(TOKENS.token(("17", "x"), scope=SCOPE)))
        place = data.draw(st.integers(0, len(raw) - 1))
        raw[place] ^= data.draw(st.integers(1, 255))

        with pytest.raises(InvalidPageTokenError):
            TOKENS.page(size=1, token=base64.urlsafe_b64encode(raw).decode(), scope=SCOPE)

    @pytest.mark.parametrize("payload", ["", "{}", '["1"]', "null", "[[[", "\x00"])
    def test_a_payload_without_its_tag_is_refused(self, payload: str) -> None:
        for tag in (b"", bytes(16), json.dumps(SCOPE).encode()[:16]):
            token = base64.urlsafe_b64encode(tag + payload.encode()).decode() or "="

            with pytest.raises(InvalidPageTokenError):
                TOKENS.page(size=1, token=token, scope=SCOPE)
