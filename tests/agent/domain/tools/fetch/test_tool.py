import asyncio
from collections.abc import Callable

import pytest

from services.agent.clients.web import WebClient
from services.agent.domain.chat import ToolEffect
from services.agent.domain.ports import WebReply
from services.agent.domain.tools.errors import FailedToolError, RetryToolError, ToolError
from services.agent.domain.tools.fetch.tool import HttpFetch
from services.agent.domain.tools.fetch.urls import Url, UrlError, read_rules, read_url
from tests.agent.clients.web_server import HOST, canary
from tests.agent.domain.tools.contexts import CONTEXT
from tests.agent.domain.tools.fetch.spellings import SPELLINGS

RULES = read_rules(f"{HOST}, *.sub.example.org, http://plain.example.org")


def page(body: str | bytes, kind: str = "text/plain", *, whole: bool = True) -> WebReply:
    return WebReply(200, kind, "", body.encode() if isinstance(body, str) else body, whole=whole)


def moved(location: str, status: int = 302) -> WebReply:
    return WebReply(status, "", location, b"", whole=False)


class Pages:
    """A web of these pages, by their addresses."""

    def __init__(self, **pages: WebReply) -> None:
        self.asked: list[str] = []
        self._pages = pages

    async def get(self, url: Url, *, max_bytes: int) -> WebReply:
        self.asked.append(str(url))
        return self._pages[url.target.strip("/") or "start"]


async def fetch(pages: Pages, url: str = f"https://{HOST}/start") -> str:
    result = await HttpFetch(pages, RULES).run({"url": url}, CONTEXT)
    assert result.error is None
    return result.text


class TestSpec:
    def test_it_goes_out_and_its_results_are_from_outside(self) -> None:
        spec = HttpFetch(Pages(), RULES).spec

        assert (spec.effect, spec.trusted, spec.idempotent) == (ToolEffect.OUTBOUND, False, True)
        assert f"{HOST}, *.sub.example.org, http://plain.example.org" in spec.description

    def test_not_all_of_many_hosts_are_told(self) -> None:
        rules = read_rules(",".join(f"h{number}.org" for number in range(100)))

        assert "h29.org and 70 more" in HttpFetch(Pages(), rules).spec.description


class TestReading:
    @pytest.mark.parametrize(
        ("reply", "text"),
        [
            (page("hello\n"), "hello"),
            (page("<title>A</title><p>b", "text/html"), "Title: A\n\nb"),
            (page("<p>b</p>", "Application/XHTML+xml; charset=utf-8"), "b"),
            (page('{"a":["ü"]}', "application/json"), '{\n "a": [\n  "ü"\n ]\n}'),
            (page('{"a":', "application/problem+json"), '{"a":'),
            (page("<a/>", "application/rss+xml"), "<a/>"),
            (page("x", ""), "x"),
            (page(" "), "(The page has no text.)"),
            (page("ü".encode("latin-1"), "text/plain; charset=latin1"), "ü"),
            (
                page("begin", whole=False),
                "begin\n\n[Only the beginning was read: the page is longer than 2 MiB.]",
            ),
        ],
    )
    async def test_a_page_becomes_text(self, reply: WebReply, text: str) -> None:
        assert await fetch(Pages(start=reply)) == text

    @pytest.mark.parametrize(
        "reply",
        [
            page(b"\x89PNG", "image/png"),
            page(b"%PDF", "application/pdf"),
            page(b"a\x00b", "text/plain"),
            page(b"PK\x03\x04", "application/octet-stream"),
        ],
    )
    async def test_what_is_no_text_is_not_read(self, reply: WebReply) -> None:
        with pytest.raises(FailedToolError, match=r"^the page is no text but"):
            await fetch(Pages(start=reply))

    @pytest.mark.parametrize(
        ("status", "error", "told"),
        [
            (404, RetryToolError, "there is no such page: the server answered 404"),
            (403, FailedToolError, "the server answered 403 Forbidden"),
            (500, FailedToolError, "the server answered 500 Internal Server Error"),
            (599, FailedToolError, "the server answered 599"),
            (304, FailedToolError, "the server answered 304 Not Modified"),
        ],
    )
    async def test_an_error_of_the_server_is_told(
        self, status: int, error: type[ToolError], told: str
    ) -> None:
        with pytest.raises(error) as raised:
            await fetch(Pages(start=WebReply(status, "", "", b"", whole=False)))

        assert raised.value.message == told

    async def test_a_page_that_does_not_come_is_given_up(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Silent(Pages):
            async def get(self, url: Url, *, max_bytes: int) -> WebReply:
                await asyncio.Event().wait()
                raise AssertionError

        monkeypatch.setattr("services.agent.domain.tools.fetch.tool._SECONDS", 0.05)
        with pytest.raises(FailedToolError, match=r"^the page did not come within"):
            await fetch(Silent())


class TestRedirects:
    async def test_three_are_followed_and_the_last_address_is_told(self) -> None:
        pages = Pages(
            start=moved("/b", 301),
            b=moved("//x.sub.example.org/c?d=e#f", 307),
            **{"c?d=e": moved("http://plain.example.org/d", 308)},
            d=page("hello"),
        )

        result = await HttpFetch(pages, RULES).run({"url": f"https://{HOST}"}, CONTEXT)

        assert (result.text, result.source) == ("hello", "http://plain.example.org/d")
        assert len(pages.asked) == 4

    async def test_a_fourth_is_not(self) -> None:
        pages = Pages(start=moved("/start"))

        with pytest.raises(FailedToolError, match="more than 3 times"):
            await fetch(pages)

        assert len(pages.asked) == 4

    @pytest.mark.parametrize(
        "location",
        [
            *("https://other.org/", "//other.org", f"http://{HOST}/", f"https://{HOST}:8443/"),
            *("https://sub.example.org/", f"https://{HOST}.other.org/", f"https://a@{HOST}/"),
            *(f"https://{HOST}\\@other.org/", "file:///etc/passwd", "\\\\other.org", "http://[::1"),
            *("gopher://other.org/", "https://127.0.0.1/", "javascript:x", "/ x", "/\x7f"),
        ],
    )
    async def test_each_is_checked_again(self, location: str) -> None:
        pages = Pages(start=moved(location))

        with pytest.raises(FailedToolError, match=r"^the server redirected to"):
            await fetch(pages)

        assert len(pages.asked) == 1


class TestSpellings:
    """T-X10: however an address is written, nothing reaches a server that is not public."""

    def test_there_are_enough(self) -> None:
        assert len(set(SPELLINGS)) >= 100

    @pytest.mark.parametrize("spelling", SPELLINGS)
    async def test_none_reaches_this_machine(self, spelling: Callable[[int], str] | str) -> None:
        """Neither through the rules, nor past them with the system's resolver."""
        async with canary() as trap:
            url = str(spelling).replace("{port}", str(trap.port))
            everywhere = read_rules(f"http://*.nip.example:{trap.port}")
            with pytest.raises((RetryToolError, FailedToolError)):
                await HttpFetch(WebClient(), everywhere).run({"url": url}, CONTEXT)
            try:
                read = read_url(url)
            except UrlError:
                read = None
            if read is not None:
                with pytest.raises(FailedToolError):
                    await WebClient().get(read, max_bytes=10)

            assert trap.connections == 0
