"""Uploads in pieces, by themselves."""

import asyncio
import hashlib
from collections.abc import AsyncIterator

import pytest
from chatmind.knowledge.v1.knowledge_service_pb2 import UploadDocumentHeader, UploadDocumentRequest

from services.common.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    ResourceExhaustedError,
)
from services.knowledge.api.uploads import IncomingUpload, UploadSlots
from services.knowledge.domain.errors import ContentMismatchError, ContentTooLargeError

HEADER = UploadDocumentHeader(display_name="a.md")


async def parts(*given: UploadDocumentHeader | bytes) -> AsyncIterator[UploadDocumentRequest]:
    """An upload of these."""
    for part in given:
        if isinstance(part, bytes):
            yield UploadDocumentRequest(data=part)
        else:
            yield UploadDocumentRequest(header=part)


async def content_of(
    *given: bytes | UploadDocumentHeader, header: UploadDocumentHeader = HEADER
) -> bytes:
    """The content of an upload of these."""
    incoming = IncomingUpload(parts(header, *given), max_bytes=10, idle_seconds=5)
    content, content_hash = await incoming.content(await incoming.header())
    assert hashlib.sha256(content).hexdigest() == content_hash
    return content


class TestHeader:
    async def test_comes_first(self) -> None:
        assert (
            await IncomingUpload(parts(HEADER, b"x"), max_bytes=10, idle_seconds=5).header()
            == HEADER
        )

    async def test_anything_else_first_is_refused(self) -> None:
        for incoming in (parts(b"x", HEADER), parts()):
            with pytest.raises(InvalidArgumentError):
                await IncomingUpload(incoming, max_bytes=10, idle_seconds=5).header()


class TestContent:
    async def test_is_what_came_in_its_order(self) -> None:
        assert await content_of() == b""
        assert await content_of(b"one", b"", b"two") == b"onetwo"

    async def test_up_to_the_limit(self) -> None:
        assert len(await content_of(b"x" * 4, b"y" * 6)) == 10
        with pytest.raises(ContentTooLargeError):
            await content_of(b"x" * 4, b"y" * 7)

    async def test_a_second_header_is_refused(self) -> None:
        with pytest.raises(InvalidArgumentError):
            await content_of(b"x", HEADER)

    async def test_is_what_the_header_announced(self) -> None:
        digest = hashlib.sha256(b"text").hexdigest()
        header = UploadDocumentHeader(content_hash=digest)

        assert await content_of(b"te", b"xt", header=header) == b"text"
        with pytest.raises(ContentMismatchError) as caught:
            await content_of(b"te", b"x", header=header)
        assert caught.value.metadata["expected"] == digest

    async def test_a_client_that_stalls_is_not_waited_for_long(self) -> None:
        async def stalls() -> AsyncIterator[UploadDocumentRequest]:
            yield UploadDocumentRequest(header=HEADER)
            await asyncio.Event().wait()

        incoming = IncomingUpload(stalls(), max_bytes=10, idle_seconds=0.05)
        header = await incoming.header()

        with pytest.raises(DeadlineExceededError, match=r"0\.05 s"):
            await incoming.content(header)


class TestUploadSlots:
    async def test_are_given_back(self) -> None:
        slots = UploadSlots(1, patience=0.05)
        for _ in range(3):
            async with slots.one():
                with pytest.raises(ResourceExhaustedError):
                    async with slots.one():
                        pass

    async def test_are_waited_for(self) -> None:
        slots = UploadSlots(1, patience=5)

        async def upload() -> None:
            async with slots.one():
                await asyncio.sleep(0)

        await asyncio.gather(*(upload() for _ in range(20)))
