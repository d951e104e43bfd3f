"""Requests on their way in."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from chatmind.embedding.v1 import embedding_service_pb2
from chatmind.gateway.v1 import access_pb2, access_service_pb2, gateway_service_pb2
from chatmind.knowledge.v1 import knowledge_service_pb2
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import StringValue
from grpc import aio

from services.common.errors import FieldViolation
from services.common.interceptors.error_status import ErrorStatusInterceptor
from services.common.interceptors.validation import ValidationInterceptor
from services.common.status import RpcFailure, failure_of
from tests.calls import stream_unary, unary_stream, unary_unary
from tests.common.serving import METHOD, Handler, serving

Read = Callable[[bytes], Message]

BASE_ID = "0190a5b8-0000-7000-8000-000000000000"
HEADER = knowledge_service_pb2.UploadDocumentRequest(
    header=knowledge_service_pb2.UploadDocumentHeader(
        knowledge_base_id=BASE_ID, display_name="a.md"
    )
)
PIECE = knowledge_service_pb2.UploadDocumentRequest(data=b"# A")


def chain() -> tuple[aio.ServerInterceptor, ...]:
    return ErrorStatusInterceptor("test.chatmind"), ValidationInterceptor()


async def name(request: Message, context: Any) -> bytes:
    return request.DESCRIPTOR.name.encode()


async def refused(raw: bytes, read: Read) -> RpcFailure:
    """How a unary call with these bytes fails."""
    handler: Handler = grpc.unary_unary_rpc_method_handler(name, request_deserializer=read)
    async with serving(handler, *chain()) as channel:
        with pytest.raises(aio.AioRpcError) as caught:
            await unary_unary(channel, METHOD)(raw)
    return failure_of(caught.value)


def uploads(behaviour: Any, read: Read | None) -> Handler:
    return grpc.stream_unary_rpc_method_handler(behaviour, request_deserializer=read)


class TestUnary:
    async def test_a_request_that_keeps_the_rules_arrives_as_a_message(self) -> None:
        handler: Handler = grpc.unary_unary_rpc_method_handler(
            name, request_deserializer=StringValue.FromString
        )
        async with serving(handler, *chain()) as channel:
            answer = await unary_unary(channel, METHOD)(StringValue(value="x").SerializeToString())

        assert answer == b"StringValue"

    @pytest.mark.parametrize("raw", [b"\xff\xff\xff", b"\x0a\x02\xff\xfe", b"\x0a\x05x"])
    async def test_bytes_that_are_no_message_or_no_utf8_are_malformed(self, raw: bytes) -> None:
        failure = await refused(raw, StringValue.FromString)

        assert failure == RpcFailure(
            grpc.StatusCode.INVALID_ARGUMENT,
            "MALFORMED_REQUEST",
            "The request is not a message of the expected type.",
        )

    async def test_every_broken_rule_is_told_at_once_by_its_field(self) -> None:
        request = knowledge_service_pb2.SearchRequest(
            knowledge_base_ids=[BASE_ID, "nonsense"], query="", top_k=0
        )
        failure = await refused(
            request.SerializeToString(), knowledge_service_pb2.SearchRequest.FromString
        )

        assert failure.reason == "INVALID_FIELD"
        assert [violation.field for violation in failure.violations] == [
            "knowledge_base_ids[1]",
            "query",
            "top_k",
        ]
        assert failure.message.startswith("knowledge_base_ids[1]: must be a valid UUID")

    async def test_one_is_not_many(self) -> None:
        request = knowledge_service_pb2.SearchRequest()
        failure = await refused(
            request.SerializeToString(), knowledge_service_pb2.SearchRequest.FromString
        )

        assert failure.violations == (
            FieldViolation("knowledge_base_ids", "must contain at least 1 item"),
            FieldViolation("query", "must be at least 1 character"),
        )

    async def test_fields_of_fields_are_named_by_their_path(self) -> None:
        request = knowledge_service_pb2.CreateKnowledgeBaseRequest()
        request.knowledge_base.chunking.max_tokens = 1
        failure = await refused(
            request.SerializeToString(),
            knowledge_service_pb2.CreateKnowledgeBaseRequest.FromString,
        )

        assert failure.violations == (
            FieldViolation(
                "knowledge_base.chunking.max_tokens",
                "must be greater than or equal to 16 and less than or equal to 8192",
            ),
        )

    async def test_a_oneof_that_is_missing_is_named(self) -> None:
        request = gateway_service_pb2.SendMessageRequest(text="hi")
        failure = await refused(
            request.SerializeToString(), gateway_service_pb2.SendMessageRequest.FromString
        )

        assert [violation.field for violation in failure.violations] == ["to"]

    async def test_thousands_of_broken_rules_still_make_an_answer(self) -> None:
        request = access_service_pb2.CreateApiKeyRequest(
            user_id="ada", roles=[access_pb2.ROLE_UNSPECIFIED] * 5_000
        )
        failure = await refused(
            request.SerializeToString(), access_service_pb2.CreateApiKeyRequest.FromString
        )

        assert failure.reason == "INVALID_FIELD"
        assert failure.violations

    async def test_one_who_takes_bytes_gets_them_as_they_are(self) -> None:
        async def echo(request: bytes, context: Any) -> bytes:
            return request

        async with serving(echo, *chain()) as channel:
            assert await unary_unary(channel, METHOD)(b"\xff") == b"\xff"


class TestStreams:
    async def test_each_message_arrives_and_is_checked(self) -> None:
        async def upload(requests: AsyncIterator[Message], context: Any) -> bytes:
            return b",".join([request.WhichOneof("part").encode() async for request in requests])

        read = knowledge_service_pb2.UploadDocumentRequest.FromString
        empty = knowledge_service_pb2.UploadDocumentRequest()
        async with serving(uploads(upload, read), *chain()) as channel:
            call = stream_unary(channel, METHOD)
            answer = await call(iter([HEADER.SerializeToString(), PIECE.SerializeToString()]))
            with pytest.raises(aio.AioRpcError) as caught:
                await call(iter([HEADER.SerializeToString(), empty.SerializeToString()]))

        assert answer == b"header,data"
        assert failure_of(caught.value).violations[0].field == "part"

    @pytest.mark.parametrize(
        "read",
        [None, knowledge_service_pb2.UploadDocumentRequest.FromString],
        ids=["bytes", "messages"],
    )
    async def test_half_an_upload_does_not_pass_for_the_whole(self, read: Read | None) -> None:
        """To grpc.aio, the stream of a client that left ends like that of one that is done."""
        stored: list[list[Any]] = []
        begun, ended = asyncio.Semaphore(0), asyncio.Semaphore(0)

        async def upload(requests: AsyncIterator[Any], context: Any) -> bytes:
            try:
                parts = [await anext(requests)]
                begun.release()
                stored.append([*parts, *[part async for part in requests]])
            finally:
                ended.release()
            return b""

        async with serving(uploads(upload, read), *chain()) as channel, asyncio.timeout(20):
            for _ in range(20):
                call = stream_unary(channel, METHOD)()
                await call.write(HEADER.SerializeToString())
                await begun.acquire()
                await call.write(PIECE.SerializeToString())
                call.cancel()
                await ended.acquire()

        assert stored == []

    @pytest.mark.parametrize("writes", [False, True])
    async def test_answers_stream_whatever_makes_them(self, writes: bool) -> None:
        async def generate(request: Message, context: Any) -> AsyncIterator[bytes]:
            yield await name(request, context)

        async def write(request: Message, context: Any) -> None:
            await context.write(await name(request, context))

        handler: Handler = grpc.unary_stream_rpc_method_handler(
            write if writes else generate,
            request_deserializer=embedding_service_pb2.ListModelsRequest.FromString,
        )
        async with serving(handler, *chain()) as channel:
            answers = [answer async for answer in unary_stream(channel, METHOD)(b"")]

        assert answers == [b"ListModelsRequest"]
