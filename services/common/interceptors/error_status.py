"""The one place where errors become gRPC statuses."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

import structlog
from grpc import StatusCode, aio

from services.common.errors import ServiceError
from services.common.interceptors.base import AroundInterceptor, Call
from services.common.interceptors.request_id import current_request_id
from services.common.status import DETAILS_KEY, grpc_code, to_status


class ErrorStatusInterceptor(AroundInterceptor):
    """Turns a `ServiceError` into its status, anything else into INTERNAL with a request id.

    grpc itself would send the text of an unhandled exception to the client.
    """

    def __init__(self, domain: str) -> None:
        self._domain = domain
        self._log = structlog.get_logger("errors")

    @asynccontextmanager
    async def around(self, call: Call) -> AsyncIterator[None]:
        """The call, whose exceptions become statuses."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - no exception may reach grpc as it is
            leaves = tuple(_leaves(error))
            for abort in leaves:
                if isinstance(abort, aio.AbortError):
                    raise abort from abort.__cause__
            # The base class that grpc generates sets this code for methods that are not written.
            if call.code is StatusCode.UNIMPLEMENTED:
                await call.context.abort(StatusCode.UNIMPLEMENTED, "No such method is served.")
            await self._abort(call, _reportable(leaves) or self._internal(leaves))

    def _internal(self, leaves: Sequence[Exception]) -> ServiceError:
        # A write fails when the client has gone, which is not our fault.
        client_gone = all(isinstance(each, aio.InternalError) for each in leaves)
        log = self._log.debug if client_gone else self._log.error
        log("unhandled error", exc_info=True)
        request_id = current_request_id()
        return ServiceError(
            f"An internal error occurred; quote request {request_id} to the operator.",
            metadata={"request_id": request_id},
        )

    async def _abort(self, call: Call, error: ServiceError) -> None:
        status = to_status(error, domain=self._domain)
        await call.context.abort(
            grpc_code(error.code),
            status.message,
            trailing_metadata=((DETAILS_KEY, status.SerializeToString()),),
        )


def _leaves(error: Exception) -> Iterator[Exception]:
    """The errors in a group, such as a TaskGroup raises; any other error is the only one."""
    if isinstance(error, ExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def _reportable(leaves: Sequence[Exception]) -> ServiceError | None:
    """The first error, if all of them may be shown to the caller."""
    reportable = [each for each in leaves if isinstance(each, ServiceError)]
    return reportable[0] if len(reportable) == len(leaves) else None
