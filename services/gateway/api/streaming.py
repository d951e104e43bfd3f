"""The rules for every stream to a client.

A stream ends when the gateway drains, when its key stops being valid, and when its client reads too
slowly. The client can then resume it, here or at another gateway.

There may be thousands of streams, and most are silent. So none has a task or a timer of its own:
one task looks after all of them.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

import structlog

from services.common.errors import ServiceError
from services.common.interceptors.base import Context
from services.common.tasks import task_group
from services.gateway.api.authentication import current_key
from services.gateway.domain.errors import DrainingError, InvalidKeyError, SlowConsumerError
from services.gateway.domain.models import ApiKey

_LOOKS_PER_WRITE = 4


class OpenStream:
    """The stream of one call, open for as long as its block lasts; made by `ClientStreams.open`.

    Attributes:
        key: the API key of the call.
        ends_itself: whether it ends by itself when the gateway drains.
        through: the sequence up to which the client was sent every message; None if it has none.
        writing_since: when the present write began; None between two writes.
    """

    __slots__ = (
        "_context",
        "_end",
        "_others",
        "_task",
        "ends_itself",
        "key",
        "through",
        "writing_since",
    )

    def __init__(
        self, context: Context, others: "set[OpenStream]", *, key: ApiKey, ends_itself: bool
    ) -> None:
        self.key = key
        self.ends_itself = ends_itself
        self.through: int | None = None
        self.writing_since: float | None = None
        self._context = context
        self._others = others
        self._end: ServiceError | None = None
        self._task: asyncio.Task[Any] | None = None

    async def write(self, message: Any) -> None:
        """Send a message, or bytes; returns when there is room for more."""
        self.writing_since = time.monotonic()
        await self._context.write(message)
        self.writing_since = None

    def end(self, error: ServiceError) -> None:
        """Interrupt the block with an error; a client that does not read may learn of it late."""
        if self._end is None and self._task is not None:
            self._end = error
            self._task.cancel()
            structlog.get_logger("streams").info("stream ended", reason=error.reason)

    async def __aenter__(self) -> "OpenStream":
        # If a write were cancelled before the metadata is out, the client would never see the end.
        await self._context.send_initial_metadata(())
        self._task = asyncio.current_task()
        self._others.add(self)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._others.discard(self)
        if self._end is not None and self._task is not None:
            # The client may have left at the same moment, which cancels the call as well.
            cancelled_by_others = self._task.uncancel() > 0
            if kind is asyncio.CancelledError and not cancelled_by_others:
                raise self._end from None


class ClientStreams:
    """Opens streams that keep these rules; `keep` has to run beside them."""

    def __init__(
        self,
        *,
        draining: asyncio.Event,
        holds: Callable[[ApiKey], Awaitable[bool]],
        recheck_seconds: float,
        write_seconds: float,
    ) -> None:
        """No streams yet.

        Args:
            draining: set once the gateway is about to stop.
            holds: whether a key is still valid.
            recheck_seconds: how often to ask that.
            write_seconds: how long a client may take to make room for a message.
        """
        self._draining = draining
        self._holds = holds
        self._recheck_seconds = recheck_seconds
        self._write_seconds = write_seconds
        self._open: set[OpenStream] = set()

    def open(self, context: Context, *, ends_itself: bool = False) -> OpenStream:
        """The stream of the present call.

        Its block is interrupted by a DrainingError, unless it ends by itself then; by an
        InvalidKeyError if the key was revoked or expired in the meantime; and by a
        SlowConsumerError if a write takes too long.
        """
        return OpenStream(context, self._open, key=current_key(), ends_itself=ends_itself)

    async def keep(self) -> None:
        """Runs beside the streams, and ends those that the rules end."""
        async with task_group() as group:
            looks = [
                group.create_task(self._end_slow_ones()),
                group.create_task(self._end_those_without_a_key()),
            ]
            await self._draining.wait()
            for look in looks:
                look.cancel()
        for stream in list(self._open):
            if not stream.ends_itself:
                stream.end(
                    DrainingError("This gateway is shutting down; open the stream at another.")
                )

    async def _end_slow_ones(self) -> None:
        while True:
            await asyncio.sleep(min(1.0, self._write_seconds / _LOOKS_PER_WRITE))
            since = time.monotonic() - self._write_seconds
            for stream in list(self._open):
                if stream.writing_since is not None and stream.writing_since <= since:
                    stream.end(SlowConsumerError.after(stream.through))

    async def _end_those_without_a_key(self) -> None:
        while True:
            await asyncio.sleep(self._recheck_seconds)
            for key in {stream.key.id: stream.key for stream in self._open}.values():
                if not await self._still_holds(key):
                    for stream in [each for each in self._open if each.key.id == key.id]:
                        stream.end(InvalidKeyError("The API key is no longer valid."))

    async def _still_holds(self, key: ApiKey) -> bool:
        try:
            return await self._holds(key)
        except ServiceError:  # a database that is down says nothing against the key
            return True
