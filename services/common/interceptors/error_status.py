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
        """The call; its exceptions leave as statuses."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the last resort: nothing may leave as it is
            leaves = tuple(_leaves(error))
            for abort in leaves:
                if isinstance(abort, aio.AbortError):
                    raise abort from abort.__cause__
            if _is_declared_only(call, leaves):
                await call.context.abort(StatusCode.UNIMPLEMENTED, "No such method is served.")
            await self._abort(call, _told(leaves) or self._internal(leaves))

    def _internal(self, leaves: Sequence[Exception]) -> ServiceError:
        # That a client has left is found out by writing to it, and no fault.
        has_left = all(isinstance(each, aio.InternalError) for each in leaves)
        log = self._log.debug if has_left else self._log.error
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
    """The errors in a group, such as a TaskGroup raises; any other is its own only one."""
    if isinstance(error, ExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def _is_declared_only(call: Call, leaves: Sequence[Exception]) -> bool:
    """Whether nobody wrote the method: the base class that grpc generates sets the code, raises."""
    return call.code is StatusCode.UNIMPLEMENTED and isinstance(leaves[0], NotImplementedError)


def _told(leaves: Sequence[Exception]) -> ServiceError | None:
    """What the caller may be told, unless one of the errors is no service's own."""
    told = [each for each in leaves if isinstance(each, ServiceError)]
    return told[0] if len(told) == len(leaves) else None
