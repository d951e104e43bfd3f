"""Errors to statuses and back, over a real call."""

import math
from collections.abc import Iterator, Mapping
from typing import cast

import grpc
import pytest
from google.protobuf.any_pb2 import Any
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc import aio
from grpc_status import rpc_status

from services.common.errors import (
    AbortedError,
    Code,
    FieldViolation,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    ServiceError,
    UnavailableError,
)
from services.common.interceptors.error_status import ErrorStatusInterceptor
from services.common.status import (
    DETAILS_KEY,
    FailedCall,
    RpcFailure,
    failure_of,
    grpc_code,
    to_status,
)
from tests.calls import unary_unary
from tests.common.serving import METHOD, raising, serving

PEERS_LIMIT = 8 * 1024


async def failure_over_the_wire(error: ServiceError) -> tuple[aio.AioRpcError, RpcFailure]:
    async with serving(raising(error), ErrorStatusInterceptor("test.chatmind")) as channel:
        with pytest.raises(aio.AioRpcError) as caught:
            await unary_unary(channel, METHOD)(b"")
    return caught.value, failure_of(caught.value)


def details(status: status_pb2.Status) -> Iterator[str]:
    return (detail.TypeName().rpartition(".")[2] for detail in status.details)


def unpacked(status: status_pb2.Status, kind: type[error_details_pb2.RetryInfo]) -> float:
    for detail in status.details:
        info = kind()
        if detail.Unpack(info):
            return float(info.retry_delay.ToNanoseconds() / 1e9)
    raise AssertionError("no RetryInfo")


class TestGrpcCode:
    @pytest.mark.parametrize("code", Code)
    def test_numbers_and_names_are_those_of_grpc(self, code: Code) -> None:
        assert grpc_code(code).name == code.name
        assert code_pb2.Code.Value(code.name) == code.value


class TestToStatus:
    def test_every_error_says_its_reason_and_domain(self) -> None:
        error = NotFoundError("No such agent.", metadata={"resource": "agent", "id": "7"})
        status = to_status(error, domain="agent.chatmind")
        info = error_details_pb2.ErrorInfo()

        assert (status.code, status.message) == (5, "No such agent.")
        assert list(details(status)) == ["ErrorInfo"]
        assert status.details[0].Unpack(info)
        assert (info.reason, info.domain) == ("NOT_FOUND", "agent.chatmind")
        assert dict(info.metadata) == {"resource": "agent", "id": "7"}

    def test_refused_fields_come_as_bad_request(self) -> None:
        status = to_status(InvalidArgumentError.of_field("a.b", "must be"), domain="x")

        assert list(details(status)) == ["ErrorInfo", "BadRequest"]

    @pytest.mark.parametrize(
        ("error", "seconds"),
        [
            (UnavailableError("x"), 1.0),
            (ResourceExhaustedError("x"), 1.0),
            (UnavailableError("x", retry_after=0.25), 0.25),
            (AbortedError("x", retry_after=3), 3.0),
            (UnavailableError("x", retry_after=-5), 0.0),
            (UnavailableError("x", retry_after=math.inf), 86_400.0),
            (UnavailableError("x", retry_after=1e30), 86_400.0),
            (UnavailableError("x", retry_after=math.nan), 0.0),
        ],
        ids=repr,
    )
    def test_who_may_ask_again_is_told_when(self, error: ServiceError, seconds: float) -> None:
        status = to_status(error, domain="x")

        assert unpacked(status, error_details_pb2.RetryInfo) == seconds

    @pytest.mark.parametrize("error", [NotFoundError("x"), AbortedError("x"), ServiceError("x")])
    def test_who_need_not_ask_again_is_told_nothing(self, error: ServiceError) -> None:
        assert "RetryInfo" not in details(to_status(error, domain="x"))

    def test_text_that_utf8_lacks_does_no_harm(self) -> None:
        error = InvalidArgumentError.of_field("a\ud800", "\x00")

        assert to_status(error, domain="x").message == "a\ufffd: \ufffd"


class TestOverTheWire:
    async def test_all_of_it_arrives(self) -> None:
        violations = (FieldViolation("a.b[2]", "must be 中文"),)
        error = ResourceExhaustedError(
            "Too much; 慢一点.", metadata={"limit": "7"}, violations=violations, retry_after=2.5
        )
        _, failure = await failure_over_the_wire(error)

        assert failure == RpcFailure(
            code=grpc.StatusCode.RESOURCE_EXHAUSTED,
            reason="RESOURCE_EXHAUSTED",
            message="Too much; 慢一点.",
            metadata={"limit": "7"},
            violations=violations,
            retry_after=2.5,
        )

    async def test_grpcs_own_library_reads_it_too(self) -> None:
        raised, _ = await failure_over_the_wire(NotFoundError("No."))
        status = await rpc_status.aio.from_call(_FinishedCall(raised))

        assert status is not None
        assert (status.code, status.message) == (5, "No.")

    async def test_however_much_there_is_to_say_it_fits_into_metadata(self) -> None:
        many = [FieldViolation(f"texts[{i}].{'名' * 300}", "太长" * 300) for i in range(1_000)]
        error = InvalidArgumentError(
            "中" * 100_000, violations=many, metadata={"known": "模型, " * 10_000, "model": "m"}
        )
        raised, failure = await failure_over_the_wire(error)

        assert failure.code is grpc.StatusCode.INVALID_ARGUMENT
        assert failure.message.endswith("中…")
        assert failure.metadata["model"] == "m"
        assert failure.metadata["known"].startswith("模型, ")
        assert failure.violations
        assert failure.violations[0].field.startswith("texts[0].名")
        assert _size_on_the_wire(raised) < PEERS_LIMIT

    async def test_short_fields_are_told_by_the_dozen(self) -> None:
        many = [FieldViolation(f"texts[{i}]", "must not be empty") for i in range(1_000)]
        _, failure = await failure_over_the_wire(InvalidArgumentError("x", violations=many))

        assert failure.violations == tuple(many[: len(failure.violations)])
        assert len(failure.violations) > 50


class TestFailureOf:
    def test_a_call_that_never_arrived_has_a_code_and_words_alone(self) -> None:
        with grpc.insecure_channel("127.0.0.1:1") as channel:
            call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)
            with pytest.raises(grpc.RpcError) as error:
                call(b"", timeout=5)
        failure = failure_of(cast("FailedCall", error.value))

        assert failure.code is grpc.StatusCode.UNAVAILABLE
        assert failure.unreachable
        assert (failure.reason, failure.metadata, failure.violations) == ("", {}, ())
        assert failure.retry_after is None

    @pytest.mark.parametrize(
        "raw",
        [
            b"\xff\xff no status",
            "text",
            status_pb2.Status(
                details=[
                    Any(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=b"\xff\xff"),
                    Any(type_url="type.googleapis.com/nobody.knows.This", value=b"x"),
                ]
            ).SerializeToString(),
        ],
    )
    def test_details_that_cannot_be_read_are_passed_over(self, raw: str | bytes) -> None:
        failure = failure_of(_Failed({DETAILS_KEY: raw}))

        assert failure == RpcFailure(grpc.StatusCode.INTERNAL, "", "broken")

    @pytest.mark.parametrize("code", [grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INTERNAL])
    def test_who_refuses_was_reached(self, code: grpc.StatusCode) -> None:
        assert not RpcFailure(code, "", "").unreachable

    @pytest.mark.parametrize("name", ["UNAVAILABLE", "CANCELLED", "INTERNAL"])
    def test_a_call_that_grpc_itself_ended_is_broken(self, name: str) -> None:
        code = grpc.StatusCode[name]

        assert RpcFailure(code, "", "").broken
        assert not RpcFailure(code, "DRAINING", "").broken

    @pytest.mark.parametrize("name", ["NOT_FOUND", "DEADLINE_EXCEEDED", "UNKNOWN"])
    def test_other_codes_are_answers(self, name: str) -> None:
        assert not RpcFailure(grpc.StatusCode[name], "", "").broken


class _Failed:
    """A failed call with such metadata."""

    def __init__(self, trailing: Mapping[str, str | bytes]) -> None:
        self._trailing = tuple(trailing.items())

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.INTERNAL

    def details(self) -> str:
        return "broken"

    def trailing_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        return self._trailing


class _FinishedCall:
    """The call behind an error, as `rpc_status` wants it."""

    def __init__(self, error: aio.AioRpcError) -> None:
        self._error = error

    async def code(self) -> grpc.StatusCode:
        return self._error.code()

    async def details(self) -> str | None:
        return self._error.details()

    async def trailing_metadata(self) -> aio.Metadata:
        return self._error.trailing_metadata()


def _size_on_the_wire(error: aio.AioRpcError) -> int:
    """As HTTP/2 counts header lists: each entry with 32 bytes more."""
    raw = dict(error.trailing_metadata())[DETAILS_KEY]
    message = sum(1 if 32 <= byte < 127 else 3 for byte in (error.details() or "").encode())
    return len(DETAILS_KEY) + (len(raw) + 2) // 3 * 4 + len("grpc-message") + message + 64
