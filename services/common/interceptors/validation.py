"""Decodes requests and checks them against the rules beside the fields in `protos/`."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from google.protobuf.message import DecodeError, Message
from protovalidate import Validator, Violation

from services.common.errors import FieldViolation, InvalidArgumentError
from services.common.interceptors.base import (
    Context,
    Handler,
    WrappingInterceptor,
    coroutine_of,
    rebuild,
)

_DEPARTURE_SECONDS = 0.01
# The library says "1 characters" and "1 item(s)".
_ONE = re.compile(r"\b1 (character|byte|item|pair)(s|\(s\))")


class MalformedRequestError(InvalidArgumentError):
    """The bytes are not a message of the expected type."""

    reason = "MALFORMED_REQUEST"


class ValidationInterceptor(WrappingInterceptor):
    """Takes decoding over from grpc, which would answer INTERNAL for bytes it cannot read."""

    def __init__(self) -> None:
        self._validator = Validator()

    def wrapped(self, handler: Handler, method: str) -> Handler:  # noqa: ARG002 - others need it
        """The handler, whose behaviour gets only messages that keep the rules.

        A behaviour that takes bytes gets them as they are.
        """
        if not (handler.request_deserializer or handler.request_streaming):
            return handler
        inner = coroutine_of(handler)
        read = partial(self._read, handler.request_deserializer)
        checked = partial(_each, read) if handler.request_streaming else read

        async def behave(request: Any, context: Context) -> Any:
            return await inner(checked(request), context)

        return rebuild(handler, behave, keep_deserializer=False)

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
    description = violation.proto.message or violation.proto.rule_id
    return FieldViolation(name or "request", _ONE.sub(r"1 \1", description))


def _element(element: Any) -> str:
    subscript = element.subscript
    if subscript is None:
        return f".{element.field_name}"
    return f".{element.field_name}[{subscript.value}]"
