import httpx2
import pytest

from services.agent.clients.model_http import ModelTimeouts, ReplyTooLargeError, model_http
from tests.agent.scripted_model import FLOOD, SILENCE, Reply, raw, scripted_model

TIMES = ModelTimeouts(connect_seconds=2, total_seconds=10)


async def posted(
    reply: Reply, *, most: int = 1000, timeouts: ModelTimeouts = TIMES
) -> httpx2.Response:
    async with scripted_model() as server, model_http(timeouts, max_reply_bytes=most) as http:
        server.script(reply)
        return await http.post(server.base_url, json={})


class TestModelHttp:
    async def test_a_reply_of_just_the_size_is_taken(self) -> None:
        assert len((await posted(raw(b"x" * 1000))).content) == 1000

    @pytest.mark.parametrize("reply", [raw(b"x" * 1001), FLOOD])
    async def test_a_longer_one_is_cut_off(self, reply: Reply) -> None:
        with pytest.raises(ReplyTooLargeError):
            await posted(reply)

    async def test_redirects_are_not_followed(self) -> None:
        moved = Reply(status=307, headers={"location": "http://127.0.0.1:1/elsewhere"})

        assert (await posted(moved)).status_code == 307

    async def test_silence_ends_in_a_timeout(self) -> None:
        with pytest.raises(httpx2.ReadTimeout):
            await posted(SILENCE, timeouts=ModelTimeouts(total_seconds=0.1))
