"""Frames over a pipe."""

import asyncio
import io

import pytest

from services.knowledge.clients.frames import pack, read, receive


async def reader_of(data: bytes) -> asyncio.StreamReader:
    """A stream that holds this and ends."""
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return reader


class TestReceive:
    async def test_values_come_in_their_order(self) -> None:
        reader = await reader_of(pack("one") + pack({"two": (2,)}))

        assert await receive(reader, str) == "one"
        assert await receive(reader, dict) == {"two": (2,)}

    @pytest.mark.parametrize("kept", [0, 3, 8, 12])
    async def test_an_end_in_the_middle_is_an_end(self, kept: int) -> None:
        reader = await reader_of(pack("something")[:kept])

        with pytest.raises(EOFError):
            await receive(reader, str)

    async def test_a_value_of_another_type_is_refused(self) -> None:
        reader = await reader_of(pack(1))

        with pytest.raises(TypeError):
            await receive(reader, str)


class TestRead:
    def test_values_come_in_their_order(self) -> None:
        pipe = io.BytesIO(pack("one") + pack(2))

        assert read(pipe, str) == "one"
        assert read(pipe, int) == 2
        with pytest.raises(EOFError):
            read(pipe, int)
