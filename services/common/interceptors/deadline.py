"""Gives a deadline to unary calls that have none, and tells how much of it is left.

Streams get none: a watch lasts as long as its client wants, an upload as long as its connection
needs.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from contextvars import ContextVar

from services.common.errors import DeadlineExceededError
from services.common.interceptors.base import AroundInterceptor, Call

DEFAULT_DEADLINE_SECONDS = 30.0

# Kept back from the caller's deadline, so that there is time to report a slow dependency.
_MARGIN_SECONDS = 0.25
_LEAST_SECONDS = 0.05

_until: ContextVar[float | None] = ContextVar("deadline", default=None)


def time_left(at_most: float = DEFAULT_DEADLINE_SECONDS) -> float:
    """How many seconds a call to another service may take while answering the present one.

    This is the rest of the present call's deadline less a margin, but at most `at_most`. Outside of
    a call with a deadline it is `at_most`.
    """
    until = _until.get()
    if until is None:
        return at_most
    return max(_LEAST_SECONDS, min(at_most, until - time.monotonic() - _MARGIN_SECONDS))


class DeadlineInterceptor(AroundInterceptor):
    """Gives unary calls a deadline if they have none; grpc enforces those that clients set."""

    def __init__(self, seconds: float = DEFAULT_DEADLINE_SECONDS) -> None:
        self._seconds = seconds

    def around(self, call: Call) -> AbstractAsyncContextManager[None]:
        """The call, bounded.

        Raises:
            DeadlineExceededError: it took too long.
        """
        given = call.seconds_left
        if given is not None:
            _until.set(time.monotonic() + given)
        if given is not None or call.streaming:
            return nullcontext()
        return self._bounded()

    @asynccontextmanager
    async def _bounded(self) -> AsyncIterator[None]:
        _until.set(time.monotonic() + self._seconds)
        try:
            async with asyncio.timeout(self._seconds) as limit:
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise DeadlineExceededError(
                f"The call took longer than {self._seconds:g} seconds; set a deadline for more.",
                metadata={"seconds": f"{self._seconds:g}"},
            ) from error
