"""T-S13: what no honest client sends costs the gateway nothing but an answer."""

import random
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import grpc
import pytest
from chatmind.gateway.v1 import access_service_pb2
from grpc import aio

from services.common.status import failure_of
from services.gateway.api.methods import Method, methods
from tests.calls import unary_stream, unary_unary
from tests.gateway.installation import ADMIN, Installation, bearer

IDENTITY = "/chatmind.gateway.v1.AccessService/GetIdentity"
METADATA_BYTES = 100_000
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
NO_MESSAGE = b"\xff\xff\xff"
# A field that no version of the contract has: number 15000, a string.
UNKNOWN_FIELD = b"\xc2\xaa\x07\x03new"
CONNECTIONS = (
    b"\x16\x03\x01" + bytes(range(256)),
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    # A frame of no kind; one that is too long; headers that are none; data without a call; a window
    # that overflows.
    PREFACE + SETTINGS + b"\x00\x00\x04\xee\x00\x00\x00\x00\x01abcd",
    PREFACE + SETTINGS + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01",
    PREFACE + SETTINGS + b"\x00\x00\x04\x01\x05\x00\x00\x00\x01\xff\xff\xff\xff",
    PREFACE + SETTINGS + b"\x00\x00\x01\x00\x01\x00\x00\x00\x07x",
    PREFACE + SETTINGS + b"\x00\x00\x04\x08\x00\x00\x00\x00\x00\x7f\xff\xff\xff",
)
OWN = [method for method in methods() if method.owner == "gateway"]


@pytest.fixture
async def well(gateway: Installation) -> AsyncIterator[Installation]:
    """A gateway that answers as ever after the test."""
    yield gateway
    assert await known(gateway) == ADMIN.user_id


@pytest.mark.parametrize("method", OWN, ids=lambda method: method.name)
async def test_bytes_that_are_no_message_are_an_invalid_argument(
    well: Installation, method: Method
) -> None:
    error = await failure(call(well, method, NO_MESSAGE))

    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert failure_of(error).reason == "MALFORMED_REQUEST"


async def test_fields_of_a_later_version_are_passed_over(well: Installation) -> None:
    raw = await unary_unary(well.channel, IDENTITY)(UNKNOWN_FIELD, metadata=bearer(well.key))

    assert access_service_pb2.GetIdentityResponse.FromString(raw).api_key.user_id == ADMIN.user_id


async def test_random_bytes_are_refused_or_answered_but_are_no_fault(well: Installation) -> None:
    """Hundreds of requests to every method of the gateway's own."""
    chance = random.Random(13)
    codes = set()
    for _ in range(40):
        for method in OWN:
            request = chance.randbytes(chance.randrange(1, 200))
            try:
                await call(well, method, request)
            except aio.AioRpcError as error:
                codes.add(error.code())

    faults = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAVAILABLE}
    assert grpc.StatusCode.INVALID_ARGUMENT in codes
    assert codes & faults == set()


async def test_metadata_without_measure_is_refused(well: Installation) -> None:
    metadata = (*bearer(well.key), ("x-much", "m" * METADATA_BYTES))
    error = await failure(unary_unary(well.channel, IDENTITY)(b"", metadata=metadata, timeout=10))

    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_connections_that_speak_another_language_disturb_nobody(well: Installation) -> None:
    with ExitStack() as stack:
        for sent in CONNECTIONS * 20:
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", well.port)))
            connection.sendall(sent)
        answered = [await known(well) for _ in range(20)]

    assert answered == [ADMIN.user_id] * 20


async def known(gateway: Installation) -> str:
    """As whom the gateway knows the owner of the key."""
    answer = await gateway.access.GetIdentity(
        access_service_pb2.GetIdentityRequest(), metadata=bearer(gateway.key), timeout=10
    )
    return str(answer.api_key.user_id)


async def failure(call: Any) -> aio.AioRpcError:
    """How a call fails."""
    with pytest.raises(aio.AioRpcError) as caught:
        await call
    return caught.value


async def call(gateway: Installation, method: Method, request: bytes) -> None:
    """Call a method with these bytes, and read its first answer."""
    metadata = bearer(gateway.key)
    if method.streams_out:
        stream = unary_stream(gateway.channel, method.path)(request, metadata=metadata, timeout=10)
        await stream.read()
        stream.cancel()
    else:
        await unary_unary(gateway.channel, method.path)(request, metadata=metadata, timeout=10)
