"""Logs a line for every call: method, outcome, duration; health and reflection at debug level."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import structlog
from grpc import aio

from services.common.interceptors.base import GRPC_SERVICES, AroundInterceptor, Call


class AccessLogInterceptor(AroundInterceptor):
    """Logs the end of each call."""

    def __init__(self) -> None:
        self._log = structlog.get_logger("access")

    @asynccontextmanager
    async def around(self, call: Call) -> AsyncIterator[None]:
        """The call, timed."""
        started = time.perf_counter()
        # What is not an Exception is a cancellation: by the client, its deadline or the shutdown.
        outcome = grpc.StatusCode.CANCELLED
        try:
            yield
            outcome = call.code or grpc.StatusCode.OK
        except aio.InternalError:  # as a write to a client that has left ends
            raise
        except Exception:
            outcome = call.code or grpc.StatusCode.UNKNOWN
            raise
        finally:
            if outcome is grpc.StatusCode.CANCELLED and call.seconds_left == 0:
                outcome = grpc.StatusCode.DEADLINE_EXCEEDED
            milliseconds = round((time.perf_counter() - started) * 1000, 1)
            log = self._log.debug if call.method.startswith(GRPC_SERVICES) else self._log.info
            log("call", outcome=outcome.name, ms=milliseconds)
