"""Takes in uploads that come in pieces."""

import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from chatmind.knowledge.v1.knowledge_service_pb2 import UploadDocumentHeader, UploadDocumentRequest

from services.common.errors import InvalidArgumentError, ResourceExhaustedError
from services.knowledge.domain.errors import ContentMismatchError, ContentTooLargeError


class UploadSlots:
    """Bounds how many uploads are held in memory at once."""

    def __init__(self, count: int) -> None:
        self._free = count

    @contextmanager
    def one(self) -> Iterator[None]:
        """A slot for as long as the block lasts.

        Raises:
            ResourceExhaustedError: all are taken.
        """
        if not self._free:
            raise ResourceExhaustedError("Too many uploads are under way.")
        self._free -= 1
        try:
            yield
        finally:
            self._free += 1


class IncomingUpload:
    """One upload: first its header, then its content, each to be read once."""

    def __init__(self, parts: AsyncIterator[UploadDocumentRequest], *, max_bytes: int) -> None:
        self._parts = parts
        self._max_bytes = max_bytes

    async def header(self) -> UploadDocumentHeader:
        """What describes the file.

        Raises:
            InvalidArgumentError: the upload does not begin with it.
        """
        async for part in self._parts:
            if part.WhichOneof("part") == "header":
                return part.header
            break
        raise InvalidArgumentError.of_field("header", "must come first")

    async def content(self, header: UploadDocumentHeader) -> tuple[bytes, str]:
        """The content and its SHA-256 in hexadecimal.

        Raises:
            ContentTooLargeError: it is over the limit.
            ContentMismatchError: it is not what the header announced.
            InvalidArgumentError: a second header came.
        """
        pieces: list[bytes] = []
        size, digest = 0, hashlib.sha256()
        async for part in self._parts:
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
