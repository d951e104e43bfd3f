"""Typed ways to call a method by its name in plain bytes, and to ask gRPC's health service.

Channels and the health package leave these types open: nothing in such a call tells them.
"""

from typing import Any, Protocol, TypeAlias, TypeVar, cast

import grpc
from grpc import aio
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

# grpc's classes take their parameters in its stubs alone.
UnaryUnary: TypeAlias = "aio.UnaryUnaryMultiCallable[bytes, bytes]"
UnaryStream: TypeAlias = "aio.UnaryStreamMultiCallable[bytes, bytes]"
StreamUnary: TypeAlias = "aio.StreamUnaryMultiCallable[bytes, bytes]"
StreamStream: TypeAlias = "aio.StreamStreamMultiCallable[bytes, bytes]"

_Answer = TypeVar("_Answer")
_Check: TypeAlias = "aio.UnaryUnaryMultiCallable[HealthCheckRequest, HealthCheckResponse]"
_Watch: TypeAlias = "aio.UnaryStreamMultiCallable[HealthCheckRequest, HealthCheckResponse]"
_BlockingCheck: TypeAlias = "grpc.UnaryUnaryMultiCallable[HealthCheckRequest, HealthCheckResponse]"
_Answers: TypeAlias = "aio.UnaryStreamCall[Any, _Answer] | aio.StreamStreamCall[Any, _Answer]"


class Health(Protocol):
    """The stub of gRPC's health service on a channel of asyncio."""

    Check: _Check
    Watch: _Watch


class BlockingHealth(Protocol):
    """The stub of gRPC's health service on a channel that blocks."""

    Check: _BlockingCheck


def unary_unary(channel: aio.Channel, method: str) -> UnaryUnary:
    """A method of one request and one answer."""
    return channel.unary_unary(method)


def unary_stream(channel: aio.Channel, method: str) -> UnaryStream:
    """A method of one request and a stream of answers."""
    return channel.unary_stream(method)


def stream_unary(channel: aio.Channel, method: str) -> StreamUnary:
    """A method of a stream of requests and one answer."""
    return channel.stream_unary(method)


def stream_stream(channel: aio.Channel, method: str) -> StreamStream:
    """A method of a stream of requests and a stream of answers."""
    return channel.stream_stream(method)


def health_of(channel: aio.Channel) -> Health:
    """The health service of whatever answers there."""
    return cast("Health", HealthStub(channel))


def blocking_health_of(channel: grpc.Channel) -> BlockingHealth:
    """The same, for those who may block."""
    return cast("BlockingHealth", HealthStub(channel))


async def read(call: "_Answers[_Answer]") -> _Answer:
    """The next answer of a stream that has not ended."""
    answer = await call.read()
    assert answer is not aio.EOF
    return cast("_Answer", answer)
