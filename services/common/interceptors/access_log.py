"""One line for every call: method, outcome, duration. Health checks only at debug level."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from services.common.interceptors.base import AroundInterceptor, Call

_QUIET = ("/grpc.health.v1.Health/", "/grpc.reflection.")


class AccessLogInterceptor(AroundInterceptor):
    """Logs the end of each call."""

    def __init__(self) -> None:
        self._log = structlog.get_logger("access")

    @asynccontextmanager
    async def around(self, call: Call) -> AsyncIterator[None]:
        """The call, timed."""
        started = time.perf_counter()
        outcome = "CANCELLED"
        try:
            yield
            outcome = "OK"
        except Exception:
            code = call.context.code()
            outcome = code.name if hasattr(code, "name") else str(code)
            raise
        finally:
            milliseconds = round((time.perf_counter() - started) * 1000, 1)
            quiet = call.method.startswith(_QUIET)
            log = self._log.debug if quiet else self._log.info
            log("call", outcome=outcome, ms=milliseconds)
