"""The HTTP server against clients that are slow, large or malformed."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from services.common.server import ListenError
from services.gateway.web import server
from services.gateway.web.app import make_app
from services.gateway.web.server import serve_http
from tests.gateway.installation import ENOUGH


@pytest.fixture
async def port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    """The port of a server with nothing but static files, and little patience."""
    monkeypatch.setattr(server, "_REQUEST_SECONDS", 0.2)
    async with serve_http(make_app([]), "127.0.0.1:0") as bound:
        yield bound


async def exchange(port: int, *pieces: bytes) -> bytes:
    """Send pieces, a moment apart; gives all that comes back until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.05)
        async with asyncio.timeout(ENOUGH):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


class TestServeHttp:
    async def test_an_address_in_use_is_told(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"

            with pytest.raises(ListenError, match=f"cannot listen on {address}: Address already"):
                async with serve_http(make_app([]), address):
                    pass

    @pytest.mark.parametrize("start", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nhost: x\r\n"])
    async def test_a_client_that_does_not_finish_its_request_is_let_go(
        self, port: int, start: bytes
    ) -> None:
        assert await exchange(port, start) == b""

    async def test_trickling_does_not_help(self, port: int) -> None:
        pieces = [b"GET / HTTP/1.1\r\n", *(b"x: y\r\n" for _ in range(20)), b"\r\n"]

        assert await exchange(port, *pieces) == b""

    async def test_a_second_request_is_not_waited_for_longer(self, port: int) -> None:
        whole = b"GET /nowhere HTTP/1.1\r\nhost: x\r\n\r\n"

        answer = await exchange(port, whole, b"GET /nowhere HT")

        assert answer.count(b"HTTP/1.1 404") == 1

    async def test_headers_without_end_are_refused(self, port: int) -> None:
        answer = await exchange(port, b"GET / HTTP/1.1\r\nhost: x\r\ny: " + b"z" * 70_000)

        assert b" 400 " in answer

    @pytest.mark.parametrize(
        "request_", [b"GET / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n"]
    )
    async def test_a_request_names_one_host(self, port: int, request_: bytes) -> None:
        assert b" 400 " in await exchange(port, request_)
