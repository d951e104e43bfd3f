"""The chain as a whole."""

from typing import Any

import pytest
import structlog
from google.protobuf.wrappers_pb2 import StringValue
from grpc import aio, unary_unary_rpc_method_handler

from services.common.errors import UnauthenticatedError
from services.common.interceptors import interceptor_chain
from services.common.interceptors.base import AdmittingInterceptor, Call
from services.common.interceptors.request_id import current_request_id
from services.common.status import failure_of
from tests.calls import unary_unary
from tests.common.serving import METHOD, Handler, serving


class RefuseAll(AdmittingInterceptor):
    """Authentication that nobody passes."""

    async def admit(self, call: Call) -> None:
        raise UnauthenticatedError(f"Not you, {current_request_id()}.")


class AdmitAll(AdmittingInterceptor):
    """Authentication that everybody passes."""

    async def admit(self, call: Call) -> None:
        """Do nothing."""


async def answer(request: StringValue, context: Any) -> bytes:
    return request.value.encode()


HANDLER: Handler = unary_unary_rpc_method_handler(
    answer, request_deserializer=StringValue.FromString
)


async def failed(authentication: aio.ServerInterceptor) -> tuple[str, list[tuple[str, str]]]:
    """The message of a call whose bytes are malformed, and the lines of the log."""
    chain = interceptor_chain("test.chatmind", authentication, make_id=lambda: "r1")
    processors = [structlog.contextvars.merge_contextvars]
    with structlog.testing.capture_logs(processors) as lines:
        async with serving(HANDLER, *chain) as channel:
            with pytest.raises(aio.AioRpcError) as caught:
                await unary_unary(channel, METHOD)(b"\xff")
    return failure_of(caught.value).message, [
        (line["outcome"], line["request_id"]) for line in lines
    ]


class TestChain:
    async def test_nothing_is_decoded_for_who_is_not_admitted(self) -> None:
        assert await failed(RefuseAll()) == ("Not you, r1.", [("UNAUTHENTICATED", "r1")])

    async def test_a_refusal_by_the_contract_is_a_status_and_in_the_log(self) -> None:
        message, lines = await failed(AdmitAll())

        assert message == "The request is not a message of the expected type."
        assert lines == [("INVALID_ARGUMENT", "r1")]

    async def test_a_good_call_passes_through_all(self) -> None:
        chain = interceptor_chain("test.chatmind", AdmitAll())
        async with serving(HANDLER, *chain) as channel:
            request = StringValue(value="hi").SerializeToString()

            assert await unary_unary(channel, METHOD)(request) == b"hi"
