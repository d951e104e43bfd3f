"""Decodes requests and checks them against the rules beside the fields in `protos/`."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message
from grpc import aio
from protovalidate import Validator, Violation

from services.common.errors import FieldViolation, InvalidArgumentError
from services.common.interceptors.base import (
    Context,
    Continuation,
    OptionalHandler,
    behaviour_of,
    rebuild,
    responses,
)

_DEPARTURE_SECONDS = 0.01


class MalformedRequestError(InvalidArgumentError):
    """The bytes are not a message of the expected type."""

    reason = "MALFORMED_REQUEST"


class ValidationInterceptor(aio.ServerInterceptor):
    """Takes decoding over from grpc, which would answer INTERNAL for bytes it cannot read."""

    def __init__(self) -> None:
        self._validator = Validator()

    async def intercept_service(
        self,
        continuation: Continuation,
        handler_call_details: grpc.HandlerCallDetails,
    ) -> OptionalHandler:
        """The handler, whose behaviour gets only messages that keep the rules.

        A behaviour that takes bytes gets them as they are.
        """
        handler = await continuation(handler_call_details)
        if handler is None or not (handler.request_deserializer or handler.request_streaming):
            return handler
        inner = behaviour_of(handler)
        read = partial(self._read, handler.request_deserializer)
        checked = partial(_each, read) if handler.request_streaming else read

        async def stream(request: Any, context: Context) -> AsyncIterator[Any]:
            async with aclosing(responses(inner, checked(request), context)) as answers:
                async for answer in answers:
                    yield answer

        async def unary(request: Any, context: Context) -> Any:
            return await inner(checked(request), context)

        behaviour = stream if handler.response_streaming else unary
        return rebuild(handler, behaviour, keep_deserializer=False)

    def _read(self, deserialize: Callable[[bytes], Any] | None, raw: bytes) -> Message | bytes:
        if deserialize is None:
            return raw
        try:
            message: Message = deserialize(raw)
        except (DecodeError, UnicodeDecodeError) as error:
            raise MalformedRequestError(
                "The request is not a message of the expected type."
            ) from error
        violations = [_violation(v) for v in self._validator.collect_violations(message)]
        if violations:
            summary = "; ".join(f"{v.field}: {v.description}" for v in violations[:5])
            raise InvalidArgumentError(summary, violations=violations)
        return message


async def _each(
    read: Callable[[bytes], Message | bytes], parts: AsyncIterator[bytes]
) -> AsyncIterator[Message | bytes]:
    async for part in parts:
        yield read(part)
    # In grpc.aio a client that has gone looks like one that is done, until the cancellation comes a
    # moment later. Without this pause, half an upload would be taken for the whole.
    await asyncio.sleep(_DEPARTURE_SECONDS)


def _violation(violation: Violation) -> FieldViolation:
    path = violation.proto.field
    elements = path.elements if path else []
    name = "".join(_element(e) for e in elements).removeprefix(".")
    return FieldViolation(name or "request", violation.proto.message or violation.proto.rule_id)


def _element(element: Any) -> str:
    subscript = element.subscript
    if subscript is None:
        return f".{element.field_name}"
    return f".{element.field_name}[{subscript.value}]"
