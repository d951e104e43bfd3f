import asyncio
import gzip
import socket
import ssl
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from services.agent.clients.model_http import (
    ConnectTimeoutError,
    HttpReply,
    ModelHttp,
    ModelTimeouts,
    NotBegunError,
    OutOfTimeError,
    ReplyTooLargeError,
    StalledReplyError,
    Target,
    UnreachableError,
    model_http,
)
from tests.agent.scripted_model import (
    FLOOD,
    HANGS_UP,
    SILENCE,
    TRUNCATED_BODY,
    Reply,
    Then,
    fails,
    raw,
    scripted_model,
)

MEGABYTE = 1024 * 1024
ROOMY = ModelTimeouts(20, 20, 20, 20)
BODY = raw(b"x" * 1000)


async def posted(
    reply: Reply, *, most: int = 1000, timeouts: ModelTimeouts = ROOMY, streamed: bool = False
) -> HttpReply:
    async with scripted_model() as server, model_http(timeouts, max_reply_bytes=most) as http:
        server.script(reply)
        got = await asked(http, Target(server.base_url), timeouts=timeouts, streamed=streamed)
        assert server.requests[0].headers["accept-encoding"] == "identity"
        return got


async def asked(
    http: ModelHttp,
    target: Target,
    *,
    timeouts: ModelTimeouts = ROOMY,
    streamed: bool = False,
    body: bytes = b"{}",
) -> HttpReply:
    deadline = asyncio.get_running_loop().time() + timeouts.total_seconds
    return await http.post(target, body, streamed=streamed, deadline=deadline)


class TestSize:
    async def test_a_reply_of_just_the_size_is_taken(self) -> None:
        assert len((await posted(BODY)).body) == 1000

    @pytest.mark.parametrize("reply", [raw(b"x" * 1001), raw(b"x" * 1001, announced=False), FLOOD])
    async def test_a_longer_one_is_cut_off(self, reply: Reply) -> None:
        with pytest.raises(ReplyTooLargeError):
            await posted(reply)

    async def test_nothing_is_unpacked(self) -> None:
        """A megabyte of zeros is a kilobyte on the way."""
        packed = gzip.compress(bytes(MEGABYTE))
        reply = raw(packed, headers={"content-encoding": "gzip"})

        response = await posted(reply, most=2 * MEGABYTE)

        assert response.body == packed

    @pytest.mark.parametrize("announced", [True, False])
    async def test_memory_holds_no_more_than_the_bound(self, announced: bool) -> None:
        """T-D16: an answer of 50 MB costs little more than the 2 MiB that it may have."""
        reply = raw(bytes(65_536), times=800, announced=announced)
        tracemalloc.start()
        try:
            with pytest.raises(ReplyTooLargeError):
                await posted(reply, most=2 * MEGABYTE)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

        assert peak < 12 * MEGABYTE


@contextmanager
def crowded() -> Iterator[str]:
    """The address of a server that takes no connection any more, as it accepts none."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1"


class TestTime:
    async def test_a_connection_must_be_taken(self) -> None:
        timeouts = replace(ROOMY, connect_seconds=0.1)
        with crowded() as address:
            async with model_http(timeouts, max_reply_bytes=1000) as http:
                with pytest.raises(ConnectTimeoutError):
                    await asked(http, Target(address))

    async def test_a_streamed_reply_must_begin(self) -> None:
        with pytest.raises(NotBegunError):
            await posted(SILENCE, timeouts=replace(ROOMY, first_byte_seconds=0.1), streamed=True)

    async def test_headers_are_no_beginning(self) -> None:
        begins_not = replace(BODY, part=0, then=Then.STALL)

        with pytest.raises(NotBegunError):
            await posted(begins_not, timeouts=replace(ROOMY, first_byte_seconds=0.1), streamed=True)

    async def test_a_whole_reply_may_take_all_of_the_time_to_begin(self) -> None:
        slow = ModelTimeouts(20, first_byte_seconds=0.05, chunk_seconds=20, total_seconds=0.4)
        begun = time.monotonic()

        with pytest.raises(OutOfTimeError):
            await posted(SILENCE, timeouts=slow)

        assert time.monotonic() - begun >= 0.4

    @pytest.mark.parametrize("streamed", [False, True])
    async def test_a_reply_that_has_begun_must_go_on(self, streamed: bool) -> None:
        stalls = replace(BODY, part=0.5, then=Then.STALL)

        with pytest.raises(StalledReplyError):
            await posted(stalls, timeouts=replace(ROOMY, chunk_seconds=0.1), streamed=streamed)

    async def test_a_reply_that_goes_on_must_end_in_time(self) -> None:
        trickles = replace(BODY, piece=1, pause=0.02)

        with pytest.raises(OutOfTimeError):
            await posted(trickles, timeouts=replace(ROOMY, total_seconds=0.3))

    async def test_a_slow_reply_that_goes_on_comes_whole(self) -> None:
        slow = replace(BODY, piece=100, pause=0.02)
        quick = replace(ROOMY, first_byte_seconds=5, chunk_seconds=5)

        assert len((await posted(slow, timeouts=quick, streamed=True)).body) == 1000

    async def test_a_server_that_takes_no_request_keeps_nobody_past_the_deadline(self) -> None:
        """The kernel holds some of it, nobody reads the rest."""
        short = replace(ROOMY, total_seconds=0.3)
        with listening() as address:
            async with model_http(short, max_reply_bytes=1000) as http:
                with pytest.raises(OutOfTimeError):
                    await asked(http, Target(address), timeouts=short, body=bytes(32 * MEGABYTE))


@contextmanager
def listening() -> Iterator[str]:
    """The address of a server whose kernel takes connections, and which reads nothing."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1"


class TestConnection:
    @pytest.mark.parametrize("reply", [HANGS_UP, TRUNCATED_BODY, raw(b"", status=99)])
    async def test_one_that_breaks_gives_no_reply(self, reply: Reply) -> None:
        with pytest.raises(UnreachableError):
            await posted(reply)

    async def test_a_large_request_arrives_whole(self) -> None:
        body = b'{"x": "' + b"y" * (2 * MEGABYTE) + b'"}'
        async with scripted_model() as server, model_http(ROOMY, max_reply_bytes=1000) as http:
            server.script(BODY)

            await asked(http, Target(server.base_url), body=body)

            assert len(server.requests[0].json["x"]) == 2 * MEGABYTE

    async def test_it_is_used_again(self) -> None:
        async with scripted_model() as server, model_http(ROOMY, max_reply_bytes=1000) as http:
            server.script(BODY, fails(503), BODY)

            for _ in range(3):
                await asked(http, Target(server.base_url))

            assert server.connections == 1

    async def test_no_cookie_is_sent_back(self) -> None:
        async with scripted_model() as server, model_http(ROOMY, max_reply_bytes=1000) as http:
            server.script(replace(BODY, headers={"set-cookie": "a=b"}), BODY)

            for _ in range(2):
                await asked(http, Target(server.base_url))

            assert "cookie" not in server.requests[1].headers


class TestReach:
    async def test_redirects_are_not_followed(self) -> None:
        moved = Reply(status=307, headers={"location": "http://127.0.0.1:1/elsewhere"})

        assert (await posted(moved)).status == 307

    async def test_a_proxy_is_used_where_one_is_given(self) -> None:
        async with scripted_model() as proxy, model_http(ROOMY, max_reply_bytes=1000) as http:
            proxy.script(BODY)

            await asked(http, Target("http://model.example/v1", proxy=proxy.base_url))

            assert proxy.requests[0].path == "http://model.example/v1"

    async def test_the_environment_alone_brings_neither_proxy_nor_password(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        (tmp_path / ".netrc").write_text("machine 127.0.0.1 login a password b")
        monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
        async with scripted_model() as server, scripted_model() as proxy:
            monkeypatch.setenv("http_proxy", proxy.base_url)
            server.script(BODY)
            async with model_http(ROOMY, max_reply_bytes=1000) as http:
                await asked(http, Target(server.base_url))

            assert proxy.requests == []
            assert "authorization" not in server.requests[0].headers


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate that its own key signed, for 127.0.0.1, with the key beside it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "server.pem"
    path.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


@asynccontextmanager
async def over_tls(certificate: Path) -> AsyncIterator[tuple[str, list[bytes]]]:
    """The address of a server with this certificate, and what it was sent."""
    sent: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent.append(await reader.read(1))
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", sent


class TestTls:
    async def test_a_server_that_nobody_vouches_for_is_told_nothing(
        self, certificate: Path
    ) -> None:
        async with (
            over_tls(certificate) as (address, sent),
            model_http(ROOMY, max_reply_bytes=1000) as http,
        ):
            with pytest.raises(UnreachableError):
                await asked(http, Target(address, {"authorization": "Bearer hunter2"}))

        assert not any(sent)
