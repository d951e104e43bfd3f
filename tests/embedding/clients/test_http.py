import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from services.embedding.clients import http as module
from services.embedding.clients.http import Answer, JsonClient, UnreachableError, error_of
from services.embedding.domain.errors import BackendUnavailableError, TextsRefusedError
from tests.embedding.fake_http import FakeServer, Reply, Request
from tests.embedding.memory_backend import SPEC


@asynccontextmanager
async def answering(reply: Reply | None) -> AsyncIterator[JsonClient]:
    """A client of a server that answers everything so."""

    async def handler(_: Request) -> Reply | None:
        return reply

    async with (
        FakeServer(handler).serving() as server,
        httpx.AsyncClient(base_url=server.url, verify=False) as http,
    ):
        yield JsonClient(http)


async def ask(client: JsonClient) -> Answer:
    return await client.post("/x", {"text": "ü"}, seconds=5)


class TestJsonClient:
    async def test_an_answer_is_read_whatever_its_status(self) -> None:
        async with answering(Reply(500, {"error": "no"}, {"retry-after": "7"})) as client:
            answer = await ask(client)

        assert answer == Answer(500, {"error": "no"}, 7.0)
        assert not answer.ok

    @pytest.mark.parametrize("body", [b"<html>hello</html>", b"", b"\xff\xfe", b"[" * 100_000])
    async def test_what_is_no_json_has_no_body(self, body: bytes) -> None:
        async with answering(Reply(200, body)) as client:
            assert (await ask(client)).body is None

    async def test_nobody_there(self) -> None:
        async with httpx.AsyncClient(base_url="http://127.0.0.1:9", verify=False) as http:
            with pytest.raises(UnreachableError, match="cannot be reached"):
                await ask(JsonClient(http))

    async def test_hanging_up(self) -> None:
        async with answering(None) as client:
            with pytest.raises(UnreachableError, match="cannot be reached"):
                await ask(client)

    async def test_too_slow(self) -> None:
        async def handler(_: Request) -> Reply | None:
            await asyncio.Event().wait()
            return None

        async with (
            FakeServer(handler).serving() as server,
            httpx.AsyncClient(base_url=server.url, verify=False) as http,
        ):
            with pytest.raises(UnreachableError, match=r"did not answer within 0\.1 s"):
                await JsonClient(http).get("/x", seconds=0.1)

    async def test_an_answer_without_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "LARGEST_ANSWER", 1000)
        packed = gzip.compress(b"0" * 100_000)
        assert len(packed) < 1000

        async with answering(Reply(200, packed, {"content-encoding": "gzip"})) as client:
            with pytest.raises(UnreachableError, match="does not end"):
                await ask(client)

    async def test_packed_nonsense(self) -> None:
        async with answering(Reply(200, b"nonsense", {"content-encoding": "gzip"})) as client:
            with pytest.raises(UnreachableError):
                await ask(client)

    @pytest.mark.parametrize(
        ("told", "seconds"),
        [("3", 3.0), ("100000", 300.0), ("soon", None), ("-1", None), ("²", None), ("", None)],
    )
    async def test_when_to_come_again(self, told: str, seconds: float | None) -> None:
        async with answering(Reply(503, {}, {"retry-after": told})) as client:
            assert (await ask(client)).retry_after == seconds


class TestError:
    @pytest.mark.parametrize(
        ("body", "said"),
        [
            ({"error": "no"}, "no"),
            ({"error": {"message": "no"}}, "no"),
            ({"error": {"message": ["no"]}}, ""),
            ({"error": 7}, ""),
            ({}, ""),
            (None, ""),
            ({"error": "x" * 9999}, "x" * 200),
        ],
    )
    def test_the_engine_s_words_are_found(self, body: object, said: str) -> None:
        assert Answer(500, body).error == said


class TestErrorOf:
    @pytest.mark.parametrize("status", [301, 401, 403, 404, 408, 425, 429, 502, 503, 504])
    def test_what_lies_with_the_engine(self, status: int) -> None:
        error = error_of(Answer(status, None), SPEC, not_found="it lacks the model")

        assert isinstance(error, BackendUnavailableError)

    @pytest.mark.parametrize("status", [400, 413, 422, 500, 501])
    def test_what_may_lie_with_the_texts(self, status: int) -> None:
        error = error_of(Answer(status, None), SPEC, not_found="it lacks the model")

        assert isinstance(error, TextsRefusedError)
        assert error.received == f"HTTP {status}"

    def test_the_engine_s_wish_when_to_come_again_is_passed_on(self) -> None:
        error = error_of(Answer(429, None, 9), SPEC, not_found="it lacks the model")

        assert isinstance(error, BackendUnavailableError)
        assert error.retry_after == 9
