"""What failed calls mean."""

import grpc
import pytest
from grpc import aio

from services.common.errors import (
    AlreadyExistsError,
    DeadlineExceededError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    RequestIdReusedError,
    ResourceExhaustedError,
    ServiceError,
    UnauthenticatedError,
    UnavailableError,
)
from services.common.status import DETAILS_KEY, grpc_code, to_status
from services.gateway.clients.failures import translated
from services.gateway.domain import errors


def failed(error: ServiceError) -> aio.AioRpcError:
    """The failed call that another service's error makes."""
    status = to_status(error, domain="agent.chatmind")
    trailing = aio.Metadata((DETAILS_KEY, status.SerializeToString()))
    return aio.AioRpcError(grpc_code(error.code), aio.Metadata(), trailing, error.message)


def broken(code: grpc.StatusCode) -> aio.AioRpcError:
    """A failed call that no service has answered."""
    return aio.AioRpcError(code, aio.Metadata(), aio.Metadata(), "socket closed")


class TestTranslated:
    @pytest.mark.parametrize(
        "kind",
        [
            NotFoundError,
            PermissionDeniedError,
            RequestIdReusedError,
            ResourceExhaustedError,
            UnavailableError,
            errors.AgentDeletedError,
            errors.QueueFullError,
            errors.RunInProgressError,
            errors.SequenceAheadError,
            errors.SubSessionError,
        ],
    )
    def test_what_a_service_says_is_said_on(self, kind: type[ServiceError]) -> None:
        given = kind("No.", metadata={"run_id": "7"}, retry_after=2)

        said = translated(failed(given), service="agent")

        assert type(said) is kind
        assert isinstance(said, ServiceError)
        assert (said.code, said.reason) == (given.code, given.reason)
        assert (said.message, said.metadata, said.retry_after) == ("No.", {"run_id": "7"}, 2)

    def test_refused_fields_are_named(self) -> None:
        given = InvalidArgumentError.of_field("text", "must be short")

        said = translated(failed(given), service="agent")

        assert isinstance(said, InvalidArgumentError)
        assert said.violations == given.violations

    @pytest.mark.parametrize("code", ["UNAVAILABLE", "CANCELLED", "INTERNAL"])
    def test_a_line_that_broke_is_a_service_that_is_down(self, code: str) -> None:
        said = translated(broken(grpc.StatusCode[code]), service="agent")

        assert isinstance(said, errors.ServiceUnavailableError)
        assert said.metadata == {"service": "agent"}

    def test_time_that_ran_out_is_told(self) -> None:
        said = translated(broken(grpc.StatusCode.DEADLINE_EXCEEDED), service="agent")

        assert isinstance(said, DeadlineExceededError)

    @pytest.mark.parametrize(
        "given",
        [
            ServiceError("Their fault."),
            UnauthenticatedError("They do not trust us."),
            AlreadyExistsError("Nothing that we know."),
        ],
    )
    def test_what_can_only_be_our_own_fault_stays_what_it_is(self, given: ServiceError) -> None:
        error = failed(given)

        assert error is translated(error, service="agent")
