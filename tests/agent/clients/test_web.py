import asyncio
import gzip
import ssl
import tracemalloc
import zlib
from pathlib import Path

import pytest

from services.agent.clients.web import WebClient, resolve
from services.agent.domain.ports import WebReply
from services.agent.domain.tools.errors import FailedToolError
from services.agent.domain.tools.fetch.urls import read_url
from tests.agent.clients.web_server import (
    HOST,
    Names,
    answer,
    canary,
    certified,
    redirect,
    web_server,
)
from tests.agent.domain.tools.fetch.test_addresses import NOT_PUBLIC

MEGABYTE = 1024 * 1024
PUBLIC = "93.184.215.14"
CHUNKED = b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n"


def here(*, public: bool = True) -> WebClient:
    """A client for which every name is this machine."""
    return WebClient(resolve=Names(["127.0.0.1"]), is_public=lambda _: public)


async def got(sent: bytes, *, most: int = 1000) -> WebReply:
    async with web_server({"": sent}) as server:
        url = read_url(f"http://{HOST}:{server.port}/a?b=c")
        reply = await here().get(url, max_bytes=most)
        assert server.asked[0].startswith("GET /a?b=c HTTP/1.1\r\n")
        return reply


class TestGet:
    async def test_a_page_comes_with_what_is_known_of_it(self) -> None:
        reply = await got(answer(b"hello", "text/plain; charset=utf-8"))

        assert reply == WebReply(200, "text/plain; charset=utf-8", "", b"hello", whole=True)

    async def test_nothing_is_sent_but_the_request(self) -> None:
        async with web_server({"": answer(b"x", set_cookie="a=b")}) as server:
            url = read_url(f"http://{HOST}:{server.port}/")
            client = here()
            await client.get(url, max_bytes=10)
            await client.get(url, max_bytes=10)

        assert server.connections == 2
        assert server.asked[1].lower().split("\r\n") == [
            "get / http/1.1",
            f"host: {HOST}:{server.port}",
            "user-agent: chatmind",
            "accept: text/html, application/json, text/*;q=0.9, */*;q=0.1",
            "accept-encoding: identity",
            "connection: close",
            "",
            "",
        ]

    async def test_a_redirect_is_told_and_not_followed(self) -> None:
        reply = await got(redirect("/b"))

        assert (reply.status, reply.location, reply.body) == (302, "/b", b"")

    async def test_of_two_ways_on_none_is_told(self) -> None:
        sent = b"HTTP/1.1 302 X\r\nlocation: /a\r\nlocation: /b\r\ncontent-length: 0\r\n\r\n"

        assert (await got(sent)).location == ""

    async def test_answers_before_the_answer_are_passed_over(self) -> None:
        sent = b"HTTP/1.1 103 Early\r\nlink: x\r\n\r\n" + answer(b"hello")

        assert (await got(sent)).body == b"hello"

    @pytest.mark.parametrize(
        "sent",
        [
            answer(b"x" * 1001),
            b"HTTP/1.1 200 X\r\n\r\n" + b"x" * 1001,
            answer(gzip.compress(bytes(1001)), content_encoding="gzip"),
        ],
    )
    async def test_a_longer_page_is_cut(self, sent: bytes) -> None:
        reply = await got(sent)

        assert (len(reply.body), reply.whole) == (1000, False)

    @pytest.mark.parametrize(
        ("packed", "how"),
        [
            (gzip.compress(b"hello"), "gzip"),
            (gzip.compress(b"hello"), "X-GZIP"),
            (zlib.compress(b"hello"), "deflate"),
            (b"hello", "identity"),
            (b"".join(gzip.compress(part) for part in (b"he", b"", b"llo")), "gzip"),
            (gzip.compress(b"hello") + bytes(9), "gzip"),
        ],
    )
    async def test_a_packed_page_is_unpacked(self, packed: bytes, how: str) -> None:
        assert (await got(answer(packed, content_encoding=how))).body == b"hello"

    async def test_memory_holds_no_more_than_the_bound(self) -> None:
        """100 MB of zeros are 100 kB on the way."""
        packed = gzip.compress(b"") + gzip.compress(bytes(100 * MEGABYTE))
        sent = answer(packed, content_encoding="gzip")
        tracemalloc.start()
        try:
            reply = await got(sent, most=2 * MEGABYTE)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

        assert len(reply.body) == 2 * MEGABYTE
        assert peak < 12 * MEGABYTE

    @pytest.mark.parametrize(
        "sent",
        [
            b"",
            b"nonsense\r\n\r\n",
            b"HTTP/1.1 200 X\r\ncontent-length: 10\r\n\r\nabc",
            b"HTTP/1.1 200 X\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nabc",
            b"HTTP/1.1 200 X\r\na: " + b"x" * 100_000,
            b"HTTP/1.1 100 Continue\r\n\r\n" * 20_000 + answer(b"hello"),
            CHUNKED + (b"1;" + b"a" * 300 + b"\r\nx\r\n") * 900 + b"0\r\n\r\n",
            answer(b"no gzip", content_encoding="gzip"),
            answer(b"x", content_encoding="br"),
        ],
    )
    async def test_no_proper_answer_is_a_failure(self, sent: bytes) -> None:
        with pytest.raises(FailedToolError, match=r"proper answer|packed"):
            await got(sent)

    async def test_whoever_waits_too_long_leaves(self) -> None:
        gone = asyncio.Event()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            await reader.read()
            writer.close()
            gone.set()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        async with server:
            url = read_url(f"http://{HOST}:{server.sockets[0].getsockname()[1]}/")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await here().get(url, max_bytes=10)
            await gone.wait()

    async def test_a_server_that_is_not_there_is_a_failure(self) -> None:
        async with web_server() as server:
            url = read_url(f"http://{HOST}:{server.port}/")

        with pytest.raises(FailedToolError, match=rf"^{HOST} cannot be reached"):
            await here().get(url, max_bytes=10)

    async def test_a_name_that_is_unknown_is_a_failure(self) -> None:
        with pytest.raises(FailedToolError, match=r"^no host nowhere\.invalid"):
            await WebClient().get(read_url("https://nowhere.invalid/"), max_bytes=10)


class TestTls:
    @pytest.mark.parametrize(
        ("host", "trusted", "told"),
        [
            (HOST, True, ""),
            ("other.example.org", True, "the certificate of other.example.org is not valid"),
            (HOST, False, f"the certificate of {HOST} is not valid"),
        ],
    )
    async def test_the_server_is_checked_for_the_name(
        self, tmp_path: Path, host: str, trusted: bool, told: str
    ) -> None:
        shows, trusts = certified(tmp_path)
        tls = trusts if trusted else ssl.create_default_context()
        client = WebClient(resolve=Names(["127.0.0.1"]), is_public=lambda _: True, tls=tls)
        async with web_server({"": answer(b"hello")}, tls=shows) as server:
            url = read_url(f"https://{host}:{server.port}/")
            if told:
                with pytest.raises(FailedToolError, match=told):
                    await client.get(url, max_bytes=10)
                assert server.asked == []
            else:
                assert (await client.get(url, max_bytes=10)).body == b"hello"


class TestAddresses:
    """T-X10: a server on every address of this machine must hear of nobody."""

    @pytest.mark.parametrize("address", NOT_PUBLIC)
    async def test_no_connection_goes_to_an_address_that_is_not_public(self, address: str) -> None:
        async with canary() as trap:
            for answers in ([address], [PUBLIC, address], [address, PUBLIC]):
                client = WebClient(resolve=Names(answers))
                with pytest.raises(FailedToolError, match="not a host of the public internet"):
                    await client.get(read_url(f"http://{HOST}:{trap.port}/"), max_bytes=10)

            assert trap.connections == 0

    async def test_a_name_is_resolved_once(self) -> None:
        """DNS rebinding: what the name means the second time is never asked."""
        connects_to = Names(["127.0.0.1"], ["127.0.0.2"])
        client = WebClient(resolve=connects_to, is_public=lambda each: each == "127.0.0.1")
        async with web_server({"": answer(b"hello")}) as server:
            url = read_url(f"http://{HOST}:{server.port}/")

            assert (await client.get(url, max_bytes=10)).body == b"hello"
            assert connects_to.asked == [HOST]
            with pytest.raises(FailedToolError, match="not a host of the public internet"):
                await client.get(url, max_bytes=10)

        assert server.connections == 1

    async def test_names_of_this_machine_lead_nowhere(self) -> None:
        async with canary() as trap:
            for host in ("localhost", "LOCALHOST", "ip6-localhost", "localhost.localdomain"):
                url = read_url(f"http://{host}:{trap.port}/")
                with pytest.raises(FailedToolError):
                    await WebClient().get(url, max_bytes=10)

            assert trap.connections == 0

    async def test_the_system_tells_the_addresses_of_a_name(self) -> None:
        assert set(await resolve("localhost", 80)) <= {"127.0.0.1", "::1"}
