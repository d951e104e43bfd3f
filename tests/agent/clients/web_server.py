"""Servers of the web for tests: one that answers what it is told, one nobody may connect to."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

HOST = "pages.example.org"


@dataclass
class WebServer:
    """A server on this machine.

    Attributes:
        port: where it listens.
        answers: what it sends back, by what is asked for; "" stands for all else.
        asked: the requests that came.
        connections: how many connections came.
    """

    port: int = 0
    answers: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    connections: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            request = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.asked.append(request)
            writer.write(self.answers.get(request.split(" ")[1], self.answers.get("", b"")))
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def answer(
    body: bytes = b"", kind: str = "text/plain", *, status: int = 200, **headers: str
) -> bytes:
    told = {"content-type": kind, "content-length": str(len(body)), **headers}
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in told.items()]
    return "\r\n".join([f"HTTP/1.1 {status} X", *lines, "", ""]).encode() + body


def redirect(location: str, *, status: int = 302) -> bytes:
    return answer(status=status, location=location)


@asynccontextmanager
async def web_server(
    answers: Mapping[str, bytes] | None = None, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[WebServer]:
    """A server on 127.0.0.1 for as long as the block lasts."""
    web = WebServer(answers=dict(answers or {}))
    server = await asyncio.start_server(web.serve, "127.0.0.1", 0, ssl=tls)
    web.port = server.sockets[0].getsockname()[1]
    async with server:
        yield web


@asynccontextmanager
async def canary() -> AsyncIterator[WebServer]:
    """A server on every address of this machine, of both kinds, that must hear of nobody."""
    web = WebServer(answers={"": answer(b"secret")})
    first = await asyncio.start_server(web.serve, "0.0.0.0", 0)
    web.port = first.sockets[0].getsockname()[1]
    second = await asyncio.start_server(web.serve, "::", web.port)
    async with first, second:
        yield web


def certified(folder: Path, host: str = HOST) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """What a server of this name shows, and what trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    moment = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - timedelta(days=1))
        .not_valid_after(moment + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = folder / "server.pem"
    pem.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    shows = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shows.load_cert_chain(pem)
    return shows, ssl.create_default_context(cafile=str(pem))


class Names:
    """A resolver that gives these answers in turn, the last one for ever."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
