"""Takes in uploads that come in pieces."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from chatmind.knowledge.v1.knowledge_service_pb2 import UploadDocumentHeader, UploadDocumentRequest

from services.common.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    ResourceExhaustedError,
)
from services.knowledge.domain.errors import ContentMismatchError, ContentTooLargeError


class UploadSlots:
    """Bounds how many uploads are held in memory at once."""

    def __init__(self, count: int, *, patience: float) -> None:
        self._free = asyncio.Semaphore(count)
        self._patience = patience

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """A slot for as long as the block lasts.

        Raises:
            ResourceExhaustedError: none came free in time.
        """
        try:
            async with asyncio.timeout(self._patience):
                await self._free.acquire()
        except TimeoutError:
            raise ResourceExhaustedError("Too many uploads are under way.") from None
        try:
            yield
        finally:
            self._free.release()


class IncomingUpload:
    """One upload: first its header, then its content, each to be read once."""

    def __init__(
        self,
        parts: AsyncIterator[UploadDocumentRequest],
        *,
        max_bytes: int,
        idle_seconds: float,
    ) -> None:
        self._parts = parts
        self._max_bytes = max_bytes
        self._idle_seconds = idle_seconds

    async def header(self) -> UploadDocumentHeader:
        """What describes the file.

        Raises:
            InvalidArgumentError: the upload does not begin with it.
            DeadlineExceededError: it does not come.
        """
        part = await self._next()
        if part is not None and part.WhichOneof("part") == "header":
            return part.header
        raise InvalidArgumentError.of_field("header", "must come first")

    async def content(self, header: UploadDocumentHeader) -> tuple[bytes, str]:
        """The content and its SHA-256 in hexadecimal.

        Raises:
            ContentTooLargeError: it is over the limit.
            ContentMismatchError: it is not what the header announced.
            InvalidArgumentError: a second header came.
            DeadlineExceededError: the next part does not come.
        """
        pieces: list[bytes] = []
        size, digest = 0, hashlib.sha256()
        while (part := await self._next()) is not None:
            if part.WhichOneof("part") != "data":
                raise InvalidArgumentError.of_field("header", "must come once")
            size += len(part.data)
            if size > self._max_bytes:
                raise ContentTooLargeError(field="data", max_bytes=self._max_bytes)
            digest.update(part.data)
            pieces.append(part.data)
        received = digest.hexdigest()
        if header.content_hash and header.content_hash != received:
            raise ContentMismatchError(
                field="header.content_hash", expected=header.content_hash, received=received
            )
        return b"".join(pieces), received

    async def _next(self) -> UploadDocumentRequest | None:
        """The next part, None after the last; a stalled client must not hold a slot for ever."""
        try:
            async with asyncio.timeout(self._idle_seconds):
                return await anext(self._parts, None)
        except TimeoutError:
            seconds = f"{self._idle_seconds:g}"
            raise DeadlineExceededError(f"No part of the upload came for {seconds} s.") from None
