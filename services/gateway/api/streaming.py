"""The rules for every stream to a client.

A stream ends when the gateway drains, when its key stops being valid, and when its client reads too
slowly. The client can then resume it, here or at another gateway.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeAlias

from services.common.errors import ServiceError
from services.common.interceptors.base import Context
from services.common.tasks import task_group
from services.gateway.api.authentication import current_key
from services.gateway.domain.errors import DrainingError, InvalidKeyError, SlowConsumerError
from services.gateway.domain.models import ApiKey

Write: TypeAlias = Callable[[Any], Awaitable[None]]
"""Sends a message, or bytes; returns when there is room for more."""


class ClientStreams:
    """Opens streams that keep these rules."""

    def __init__(
        self,
        *,
        draining: asyncio.Event,
        holds: Callable[[ApiKey], Awaitable[bool]],
        recheck_seconds: float,
        write_seconds: float,
    ) -> None:
        self._draining = draining
        self._holds = holds
        self._recheck_seconds = recheck_seconds
        self._write_seconds = write_seconds

    @asynccontextmanager
    async def open(self, context: Context) -> AsyncIterator[Write]:
        """The stream of one call.

        Raises:
            DrainingError: the gateway is shutting down.
            InvalidKeyError: the key was revoked or expired in the meantime.
            SlowConsumerError: a write took too long.
        """

        async def write(message: Any) -> None:
            try:
                async with asyncio.timeout(self._write_seconds):
                    await context.write(message)
            except TimeoutError:
                raise SlowConsumerError(
                    "The stream was read too slowly; resume it where it ended."
                ) from None

        # If a write were cancelled before the metadata is out, the client would never see the end.
        await context.send_initial_metadata(())
        async with ended_by(partial(self._end, current_key())):
            yield write

    async def _end(self, key: ApiKey) -> ServiceError:
        while True:
            try:
                async with asyncio.timeout(self._recheck_seconds):
                    await self._draining.wait()
                return DrainingError("This gateway is shutting down; resume the stream at another.")
            except TimeoutError:
                if not await self._still_holds(key):
                    return InvalidKeyError("The API key is no longer valid.")

    async def _still_holds(self, key: ApiKey) -> bool:
        try:
            return await self._holds(key)
        except ServiceError:  # a database that is down says nothing against the key
            return True


@asynccontextmanager
async def ended_by(end: Callable[[], Awaitable[ServiceError]]) -> AsyncIterator[None]:
    """A block that is interrupted by the error which `end` returns, if it ever returns.

    Raises:
        Exception: what `end` returned, or what the block raised.
    """

    async def raise_it() -> None:
        raise await end()

    async with task_group() as group:
        watcher = group.create_task(raise_it())
        yield
        watcher.cancel()
