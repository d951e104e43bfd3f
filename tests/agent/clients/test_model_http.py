import gzip
import socket
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import httpx2
import pytest

from services.agent.clients.model_http import (
    ModelTimeouts,
    ReplyTooLargeError,
    StalledReplyError,
    model_http,
)
from tests.agent.scripted_model import FLOOD, SILENCE, Reply, Then, raw, scripted_model

MEGABYTE = 1024 * 1024
ROOMY = ModelTimeouts(20, 20, 20, 20)
BODY = raw(b"x" * 1000)


async def posted(
    reply: Reply, *, most: int = 1000, timeouts: ModelTimeouts = ROOMY, streamed: bool = False
) -> httpx2.Response:
    async with scripted_model() as server, model_http(timeouts, max_reply_bytes=most) as http:
        server.script(reply)
        timeout = timeouts.of_request(streamed=streamed)
        response = await http.post(server.base_url, json={}, timeout=timeout)
        assert server.requests[0].headers["accept-encoding"] == "identity"
        return response


class TestSize:
    async def test_a_reply_of_just_the_size_is_taken(self) -> None:
        assert len((await posted(BODY)).content) == 1000

    @pytest.mark.parametrize("reply", [raw(b"x" * 1001), raw(b"x" * 1001, announced=False), FLOOD])
    async def test_a_longer_one_is_cut_off(self, reply: Reply) -> None:
        with pytest.raises(ReplyTooLargeError):
            await posted(reply)

    async def test_nothing_is_unpacked(self) -> None:
        """A megabyte of zeros is a kilobyte on the way."""
        packed = gzip.compress(bytes(MEGABYTE))
        reply = raw(packed, headers={"content-encoding": "gzip"})

        response = await posted(reply, most=2 * MEGABYTE)

        assert response.content == packed

    @pytest.mark.parametrize("announced", [True, False])
    async def test_memory_holds_no_more_than_the_bound(self, announced: bool) -> None:
        """T-D16: an answer of 50 MB costs little more than the 2 MiB that it may have."""
        reply = raw(bytes(65_536), times=800, announced=announced)
        tracemalloc.start()
        try:
            with pytest.raises(ReplyTooLargeError):
                await posted(reply, most=2 * MEGABYTE)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

        assert peak < 12 * MEGABYTE


@contextmanager
def crowded() -> Iterator[str]:
    """The address of a server that takes no connection any more, as it accepts none."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1"


class TestTime:
    async def test_a_connection_must_be_taken(self) -> None:
        timeouts = replace(ROOMY, connect_seconds=0.1)
        with crowded() as address:
            async with model_http(timeouts, max_reply_bytes=1000) as http:
                with pytest.raises(httpx2.ConnectTimeout):
                    await http.post(address, json={}, timeout=timeouts.of_request(streamed=False))

    async def test_a_streamed_reply_must_begin(self) -> None:
        with pytest.raises(httpx2.ReadTimeout):
            await posted(SILENCE, timeouts=replace(ROOMY, first_byte_seconds=0.1), streamed=True)

    async def test_headers_are_no_beginning(self) -> None:
        begins_not = replace(BODY, part=0, then=Then.STALL)

        with pytest.raises(httpx2.ReadTimeout) as error:
            await posted(begins_not, timeouts=replace(ROOMY, first_byte_seconds=0.1), streamed=True)

        assert not isinstance(error.value, StalledReplyError)

    async def test_a_whole_reply_may_take_all_of_the_time_to_begin(self) -> None:
        slow = ModelTimeouts(20, first_byte_seconds=0.05, chunk_seconds=20, total_seconds=0.4)
        begun = time.monotonic()

        with pytest.raises(httpx2.ReadTimeout):
            await posted(SILENCE, timeouts=slow)

        assert time.monotonic() - begun >= 0.4

    @pytest.mark.parametrize("streamed", [False, True])
    async def test_a_reply_that_has_begun_must_go_on(self, streamed: bool) -> None:
        stalls = replace(BODY, part=0.5, then=Then.STALL)

        with pytest.raises(StalledReplyError):
            await posted(stalls, timeouts=replace(ROOMY, chunk_seconds=0.1), streamed=streamed)

    async def test_a_slow_reply_that_goes_on_comes_whole(self) -> None:
        slow = replace(BODY, piece=100, pause=0.02)
        quick = replace(ROOMY, first_byte_seconds=5, chunk_seconds=5)

        assert len((await posted(slow, timeouts=quick, streamed=True)).content) == 1000


class TestReach:
    async def test_redirects_are_not_followed(self) -> None:
        moved = Reply(status=307, headers={"location": "http://127.0.0.1:1/elsewhere"})

        assert (await posted(moved)).status_code == 307
