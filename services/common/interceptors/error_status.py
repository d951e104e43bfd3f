"""The one place where errors become gRPC statuses."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
from grpc import aio

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
        except aio.AbortError:
            raise
        except ServiceError as error:
            await self._abort(call, error)
        except Exception:  # noqa: BLE001 - the last resort: nothing may leave as it is
            self._log.exception("unhandled error")
            request_id = current_request_id()
            await self._abort(
                call,
                ServiceError(
                    f"An internal error occurred; quote request {request_id} to the operator.",
                    metadata={"request_id": request_id},
                ),
            )

    async def _abort(self, call: Call, error: ServiceError) -> None:
        status = to_status(error, domain=self._domain)
        await call.context.abort(
            grpc_code(error.code),
            error.message,
            trailing_metadata=((DETAILS_KEY, status.SerializeToString()),),
        )
