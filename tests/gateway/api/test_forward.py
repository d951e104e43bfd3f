"""Calls that are passed on to the services behind the gateway."""

import asyncio
import itertools
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from grpc import aio

from services.common.errors import NotFoundError, UnauthenticatedError
from services.common.status import DETAILS_KEY, FailedCall, RpcFailure, failure_of
from tests.calls import StreamUnary, UnaryStream, UnaryUnary
from tests.gateway.installation import (
    ENOUGH,
    Installation,
    bearer,
    eventually,
    open_installation,
)

SERVICE = "/chatmind.knowledge.v1.KnowledgeService"
MEGABYTE = 1024 * 1024


def search(gateway: Installation) -> UnaryUnary:
    """The call of a method with one request and one answer, in bytes."""
    return gateway.channel.unary_unary(f"{SERVICE}/Search")


def watch(gateway: Installation) -> UnaryStream:
    """The call of a method whose answers go as a stream."""
    return gateway.channel.unary_stream(f"{SERVICE}/WatchDocument")


def upload(gateway: Installation) -> StreamUnary:
    """The call of a method whose requests come as a stream."""
    return gateway.channel.stream_unary(f"{SERVICE}/UploadDocument")


async def failure(call: Any) -> RpcFailure:
    """What a call fails with."""
    with pytest.raises(aio.AioRpcError) as caught:
        await call
    return failure_of(caught.value)


async def drained(call: Any) -> list[bytes]:
    """All that a stream still brings."""
    answers = []
    while (answer := await call.read()) is not aio.EOF:
        answers.append(answer)
    return answers


class TestUnary:
    async def test_bytes_pass_unchanged_both_ways(self, gateway: Installation) -> None:
        odd = b"\x00\xff no message at all"

        assert await search(gateway)(odd, metadata=bearer(gateway.key)) == odd

    async def test_five_megabytes_pass(self, gateway: Installation) -> None:
        large = b"x" * (5 * MEGABYTE)

        assert await search(gateway)(large, metadata=bearer(gateway.key)) == large

    async def test_more_than_the_limit_is_refused_by_its_size(self, gateway: Installation) -> None:
        larger = b"x" * (gateway.settings.max_message_bytes + 1)

        failed = await failure(search(gateway)(larger, metadata=bearer(gateway.key)))

        assert failed.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "larger than max" in failed.message
        assert gateway.knowledge.calls == []

    async def test_a_status_passes_as_the_service_gave_it(self, gateway: Installation) -> None:
        gateway.knowledge.refusal = NotFoundError(
            "No document 7.", metadata={"resource": "document", "id": "7"}
        )

        with pytest.raises(aio.AioRpcError) as caught:
            await search(gateway)(b"", metadata=bearer(gateway.key))
        details = dict(caught.value.trailing_metadata() or ())[DETAILS_KEY]

        failed = failure_of(caught.value)
        assert (failed.code, failed.message) == (grpc.StatusCode.NOT_FOUND, "No document 7.")
        assert failed.metadata == {"resource": "document", "id": "7"}
        assert b"knowledge.chatmind" in details

    async def test_a_status_without_details_passes_too(self, gateway: Installation) -> None:
        gateway.knowledge.abort = (grpc.StatusCode.UNIMPLEMENTED, "not here")

        failed = await failure(search(gateway)(b"", metadata=bearer(gateway.key)))

        assert (failed.code, failed.message) == (grpc.StatusCode.UNIMPLEMENTED, "not here")

    async def test_a_service_that_does_not_trust_the_gateway_is_no_fault_of_the_key(
        self, gateway: Installation
    ) -> None:
        gateway.knowledge.refusal = UnauthenticatedError("Who are you?")

        failed = await failure(search(gateway)(b"", metadata=bearer(gateway.key)))

        assert (failed.code.name, failed.reason) == ("INTERNAL", "INTERNAL")
        assert "Who are you" not in failed.message

    async def test_time_that_ran_out_has_the_gateways_own_reason(
        self, gateway: Installation
    ) -> None:
        gateway.knowledge.abort = (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")

        failed = await failure(search(gateway)(b"", metadata=bearer(gateway.key)))

        assert (failed.code.name, failed.reason) == ("DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED")

    async def test_the_deadline_goes_on_with_the_call(self, gateway: Installation) -> None:
        await search(gateway)(b"", metadata=bearer(gateway.key), timeout=100)

        assert 90 < (gateway.knowledge.seconds_left or 0) < 101

    async def test_a_call_without_a_deadline_gets_one(self, gateway: Installation) -> None:
        await search(gateway)(b"", metadata=bearer(gateway.key))

        assert 20 < (gateway.knowledge.seconds_left or 0) < 31

    async def test_a_client_that_leaves_ends_the_call_behind_too(
        self, gateway: Installation
    ) -> None:
        gateway.knowledge.hold = asyncio.Event()
        call = search(gateway)(b"", metadata=bearer(gateway.key))
        await eventually(lambda: bool(gateway.knowledge.calls))

        call.cancel()

        await eventually(gateway.knowledge.ended.is_set)

    async def test_a_service_that_is_down_is_named(self, gateway: Installation) -> None:
        await gateway.knowledge_server.kill()

        failed = await failure(search(gateway)(b"", metadata=bearer(gateway.key)))

        assert failed.code is grpc.StatusCode.UNAVAILABLE
        assert failed.reason == "SERVICE_UNAVAILABLE"
        assert failed.metadata == {"service": "knowledge"}

    async def test_a_service_that_ends_in_mid_call_is_named(self, gateway: Installation) -> None:
        gateway.knowledge.hold = asyncio.Event()
        call = search(gateway)(b"", metadata=bearer(gateway.key))
        await eventually(lambda: bool(gateway.knowledge.calls))

        await gateway.knowledge_server.kill()

        failed = await failure(call)
        assert (failed.code.name, failed.reason) == ("UNAVAILABLE", "SERVICE_UNAVAILABLE")


class TestStream:
    async def test_answers_pass_one_by_one(self, gateway: Installation) -> None:
        answers = await drained(watch(gateway)(b"a", metadata=bearer(gateway.key)))

        assert answers == [b"a\x00", b"a\x01", b"a\x02"]
        assert gateway.knowledge.seconds_left is None

    async def test_a_status_ends_it_as_the_service_gave_it(self, gateway: Installation) -> None:
        gateway.knowledge.refusal = NotFoundError("No document 7.", metadata={"id": "7"})

        failed = await failure(drained(watch(gateway)(b"", metadata=bearer(gateway.key))))

        assert (failed.code, failed.metadata) == (grpc.StatusCode.NOT_FOUND, {"id": "7"})

    async def test_a_client_that_leaves_ends_it_behind_too(self, gateway: Installation) -> None:
        gateway.knowledge.hold = asyncio.Event()
        call = watch(gateway)(b"", metadata=bearer(gateway.key))
        await call.read()

        call.cancel()

        await eventually(gateway.knowledge.ended.is_set)

    async def test_a_service_that_breaks_is_named(self, gateway: Installation) -> None:
        gateway.knowledge.hold = asyncio.Event()
        call = watch(gateway)(b"", metadata=bearer(gateway.key))
        await call.read()
        await gateway.knowledge_server.kill()

        failed = await failure(drained(call))

        assert (failed.code.name, failed.reason) == ("UNAVAILABLE", "SERVICE_UNAVAILABLE")


class TestUpload:
    async def test_parts_pass_one_by_one(self, gateway: Installation) -> None:
        parts = [bytes([number]) * MEGABYTE for number in range(8)]

        answer = await upload(gateway)(iter(parts), metadata=bearer(gateway.key))

        assert answer == b"".join(parts)
        assert gateway.knowledge.received == parts

    async def test_an_answer_before_the_end_is_passed_on(self, gateway: Installation) -> None:
        gateway.knowledge.refusal = NotFoundError("No base 7.", metadata={"id": "7"})

        def insist() -> RpcFailure:
            # grpc.aio is at times too late to say why a write of its own failed.
            with grpc.insecure_channel(f"127.0.0.1:{gateway.port}") as channel:
                ask: grpc.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(
                    f"{SERVICE}/UploadDocument"
                )
                endless = itertools.repeat(b"x" * MEGABYTE)
                with pytest.raises(grpc.RpcError) as caught:
                    ask(endless, metadata=bearer(gateway.key), timeout=ENOUGH)
            return failure_of(cast("FailedCall", caught.value))

        failures = [await asyncio.to_thread(insist) for _ in range(10)]

        found = {(failed.code.name, failed.metadata.get("id")) for failed in failures}
        assert found == {("NOT_FOUND", "7")}

    async def test_half_an_upload_never_passes_for_the_whole(self, gateway: Installation) -> None:
        for _ in range(20):
            gateway.knowledge.ended.clear()
            call = upload(gateway)(metadata=bearer(gateway.key))
            await call.write(b"first half")
            await eventually(lambda: gateway.knowledge.received == [b"first half"])

            call.cancel()
            await eventually(gateway.knowledge.ended.is_set)

            assert gateway.knowledge.completed == 0
            gateway.knowledge.received = []


class TestLimits:
    async def test_streams_over_the_limit_are_refused_and_calls_are_not(
        self, tmp_path: Path, keys_database: str
    ) -> None:
        async with open_installation(tmp_path, keys_database, max_streams_per_key=2) as gateway:
            gateway.knowledge.hold = asyncio.Event()
            calls = [watch(gateway)(b"", metadata=bearer(gateway.key)) for _ in range(2)]
            for call in calls:
                await call.read()

            failed = await failure(drained(watch(gateway)(b"", metadata=bearer(gateway.key))))
            _, secret = await gateway.make_key("another")
            other = watch(gateway)(b"", metadata=bearer(secret))
            await other.read()
            calls[0].cancel()
            await eventually(gateway.knowledge.ended.is_set)
            again = watch(gateway)(b"", metadata=bearer(gateway.key))

            assert failed.code is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert failed.retry_after is not None
            assert await again.read() == b"\x00"
