"""Reads requests and checks them against the rules that stand beside the fields in `protos/`."""

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
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
)


class MalformedRequestError(InvalidArgumentError):
    """The bytes are no message of the expected type."""

    reason = "MALFORMED_REQUEST"


class ValidationInterceptor(aio.ServerInterceptor):
    """Takes the decoding over from grpc, which would answer INTERNAL for bytes it cannot read."""

    def __init__(self) -> None:
        self._validator = Validator()

    async def intercept_service(
        self,
        continuation: Continuation,
        handler_call_details: grpc.HandlerCallDetails,
    ) -> OptionalHandler:
        """The handler, whose behaviour gets only messages that keep the rules."""
        handler = await continuation(handler_call_details)
        if handler is None or handler.request_deserializer is None:
            return handler
        inner = behaviour_of(handler)
        deserialize = handler.request_deserializer
        streams_in = bool(handler.request_streaming)

        def checked(request: Any) -> Any:
            if streams_in:
                return (self._read(part, deserialize) async for part in request)
            return self._read(request, deserialize)

        async def stream(request: Any, context: Context) -> AsyncIterator[Any]:
            async with aclosing(inner(checked(request), context)) as responses:
                async for response in responses:
                    yield response

        async def unary(request: Any, context: Context) -> Any:
            return await inner(checked(request), context)

        behaviour = stream if inspect.isasyncgenfunction(inner) else unary
        return rebuild(handler, behaviour, keep_deserializer=False)

    def _read(self, raw: bytes, deserialize: Callable[[bytes], Any]) -> Message:
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
