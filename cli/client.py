"""The gateway as the commands see it: one channel, one key, one stub per service."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import grpc
from chatmind.agent.v1 import agent_service_pb2_grpc, run_service_pb2_grpc
from chatmind.gateway.v1 import access_service_pb2_grpc, gateway_service_pb2_grpc
from chatmind.knowledge.v1 import knowledge_service_pb2_grpc

from cli.errors import CommandError
from services.common.keepalive import CLIENT_KEEPALIVE
from services.common.status import FailedCall

DEFAULT_SERVER = "127.0.0.1:8050"
DEFAULT_DATA_DIR = Path(".chatmind")
KEY_FILE_NAME = "admin.key"

CALL_SECONDS = 30.0
"""The deadline of an ordinary call."""

_CONNECT_MILLISECONDS = 5_000
_MAX_MESSAGE_BYTES = 64 * 1024 * 1024
_THIS_MACHINE = {"127.0.0.1", "localhost", "[::1]"}


class PagedRequest(Protocol):
    """A request for a page of a list."""

    page_token: str


class PagedResponse(Protocol):
    """A page of a list."""

    next_page_token: str


ItemT = TypeVar("ItemT")
PageT = TypeVar("PageT", bound=PagedResponse)
EventT = TypeVar("EventT", covariant=True)


class StreamCall(Protocol[EventT]):
    """A call that is answered by a stream."""

    def __iter__(self) -> Iterator[EventT]:
        """The events, as they come."""

    def cancel(self) -> object:
        """End the call."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """The services of one gateway, called with one key."""

    messages: gateway_service_pb2_grpc.GatewayServiceStub
    access: access_service_pb2_grpc.AccessServiceStub
    agents: agent_service_pb2_grpc.AgentServiceStub
    runs: run_service_pb2_grpc.RunServiceStub
    knowledge: knowledge_service_pb2_grpc.KnowledgeServiceStub


@contextmanager
def connect(server: str, key: str) -> Iterator[Gateway]:
    """The gateway at `server`, for as long as the block lasts."""
    with grpc.insecure_channel(server, options=_options(server)) as plain:
        channel = grpc.intercept_channel(plain, _KeyInterceptor(key))
        yield Gateway(
            messages=gateway_service_pb2_grpc.GatewayServiceStub(channel),
            access=access_service_pb2_grpc.AccessServiceStub(channel),
            agents=agent_service_pb2_grpc.AgentServiceStub(channel),
            runs=run_service_pb2_grpc.RunServiceStub(channel),
            knowledge=knowledge_service_pb2_grpc.KnowledgeServiceStub(channel),
        )


def _options(server: str) -> list[tuple[str, int]]:
    options = [
        *CLIENT_KEEPALIVE,
        # By default grpc gives up an address that drops all packets only after twenty seconds.
        ("grpc.min_reconnect_backoff_ms", _CONNECT_MILLISECONDS),
        ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
    ]
    if server.rpartition(":")[0] in _THIS_MACHINE:
        options.append(("grpc.enable_http_proxy", 0))
    return options


def read_key(key_file: Path | None) -> str:
    """The API key: from the named file, or CHATMIND_API_KEY, or the local admin key file.

    Raises:
        CommandError: there is none.
    """
    if key_file is None and (key := os.environ.get("CHATMIND_API_KEY")):
        return _checked(key, "CHATMIND_API_KEY")
    data_dir = Path(os.environ.get("CHATMIND_DATA_DIR") or DEFAULT_DATA_DIR)
    path = key_file or data_dir / KEY_FILE_NAME
    try:
        return _checked(path.read_text(encoding="ascii"), str(path))
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} holds no API key") from error
    except OSError as error:
        raise CommandError(
            f"no API key: {path} cannot be read ({error.strerror}); start ChatMind with "
            "`chatmind up`, set CHATMIND_API_KEY or name a file with --key-file"
        ) from error


def _checked(text: str, source: str) -> str:
    """The key in a text; if it is not one, it is not shown, as it may be another secret."""
    key = text.strip()
    if not re.fullmatch("[!-~]+", key):
        raise CommandError(f"{source} holds no API key")
    return key


def listed(
    call: Callable[..., PageT], request: PagedRequest, items: Callable[[PageT], Iterable[ItemT]]
) -> Iterator[ItemT]:
    """Every item of a list, with pages requested as they are needed.

    Args:
        call: a method that lists.
        request: its request; the page token is changed along the way.
        items: gives the items of a page.
    """
    while True:
        page = call(request, timeout=CALL_SECONDS)
        yield from items(page)
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


def events(call: StreamCall[EventT]) -> Iterator[EventT]:
    """The events of a stream; leaving the iteration ends the call."""
    try:
        yield from call
    finally:
        call.cancel()


def failed_call(error: grpc.RpcError) -> FailedCall:
    """The call behind an error: stubs raise objects that are both, though grpc's types hide it."""
    return cast("FailedCall", error)


class _CallDetails(NamedTuple):
    method: str
    timeout: float | None
    metadata: Sequence[tuple[str, str | bytes]] | None
    credentials: grpc.CallCredentials | None
    wait_for_ready: bool | None
    compression: grpc.Compression | None


class _KeyInterceptor(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
):
    """Adds the key to each call."""

    def __init__(self, key: str) -> None:
        self._header = ("authorization", f"Bearer {key}")

    def intercept_unary_unary(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        return continuation(self._with_key(client_call_details), request)

    def intercept_unary_stream(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        return continuation(self._with_key(client_call_details), request)

    def intercept_stream_unary(
        self, continuation: Callable[..., Any], client_call_details: Any, request_iterator: Any
    ) -> Any:
        return continuation(self._with_key(client_call_details), request_iterator)

    def _with_key(self, details: Any) -> Any:
        return _CallDetails(
            method=details.method,
            timeout=details.timeout,
            metadata=[*(details.metadata or ()), self._header],
            credentials=details.credentials,
            wait_for_ready=details.wait_for_ready,
            compression=details.compression,
        )
