import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from services.agent.clients.model_breaker import BreakerPolicy
from services.agent.clients.model_http import ModelTimeouts
from services.agent.clients.model_retries import Retries
from services.agent.clients.models import open_models
from services.agent.clients.models_file import EndpointSettings, ModelSettings
from services.agent.domain.chat import (
    ChatMessage,
    FinishReason,
    ModelReply,
    ModelRequest,
    ToolProtocol,
    ToolResult,
)
from services.agent.domain.errors import (
    ContextTooLongError,
    EmptyAnswerError,
    ModelRejectedError,
    ModelUnavailableError,
)
from services.agent.domain.messages import Role
from services.agent.domain.models import AgentSettings, RunLimits
from services.agent.domain.ports import Model
from services.agent.domain.prices import Prices
from services.agent.domain.run_models import Cost, StopReason, Usage
from tests.agent.dialogue import CASES, case
from tests.agent.scripted_model import (
    EMPTY_CHOICES,
    FLOOD,
    HANGS_AFTER_HEADERS,
    HANGS_UP,
    HTML,
    SILENCE,
    TRUNCATED_BODY,
    TRUNCATED_JSON,
    Reply,
    ScriptedModel,
    Then,
    calls,
    fails,
    message,
    raw,
    says,
    scripted_model,
)
from tests.agent.turns import PlainTool, Scene

KEY = "hunter2-very-secret"
QUESTION = ModelRequest((ChatMessage(Role.USER, "Hello?"),))
AT_ONCE = Retries(base_seconds=0, most_retry_after_seconds=0)

Open = Callable[..., AbstractAsyncContextManager[Model]]


@pytest.fixture
async def server() -> AsyncIterator[ScriptedModel]:
    async with scripted_model() as server:
        yield server


@asynccontextmanager
async def opened(
    *urls: str,
    retries: Retries = AT_ONCE,
    policy: BreakerPolicy | None = None,
    total_seconds: float = 20,
    max_reply_bytes: int = 16 * 1024 * 1024,
    stream: bool = False,
    tool_protocol: ToolProtocol = ToolProtocol.NATIVE,
    prices: Prices | None = None,
    send_reasoning: bool = False,
) -> AsyncIterator[Model]:
    """A model of these endpoints."""
    endpoints = tuple(EndpointSettings(url, "scripted", KEY) for url in urls)
    async with open_models(
        [
            ModelSettings(
                "m",
                endpoints,
                tool_protocol=tool_protocol,
                send_reasoning=send_reasoning,
                stream=stream,
                prices=prices,
            )
        ],
        timeouts=ModelTimeouts(connect_seconds=2, total_seconds=total_seconds),
        retries=retries,
        policy=policy or BreakerPolicy(rest_seconds=0.01),
        max_reply_bytes=max_reply_bytes,
    ) as models:
        model = models.get("m")
        assert model is not None
        yield model


class TestReplies:
    async def test_a_reply_comes_whole(self, server: ScriptedModel) -> None:
        server.script(says("On b1."))

        async with opened(server.base_url) as model:
            reply = await model.complete(QUESTION)

        assert (reply.text, reply.finish_reason) == ("On b1.", FinishReason.STOP)
        assert (reply.usage, reply.model) == (Usage(10, 5), "scripted")
        assert server.requests[0].path == "/v1/chat/completions"
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
        assert server.requests[0].json == {
            "model": "scripted",
            "messages": [{"role": "user", "content": "Hello?"}],
        }

    async def test_what_it_costs_is_told(self, server: ScriptedModel) -> None:
        server.script(says("On b1."))
        prices = Prices("EUR", 1_000_000_000, 0, 2_000_000_000)

        async with opened(server.base_url, prices=prices) as model:
            reply = await model.complete(QUESTION)

        assert reply.usage == Usage(10, 5, cost=Cost("EUR", 20_000))

    async def test_tool_calls_come_as_they_were_written(self, server: ScriptedModel) -> None:
        server.script(calls(("c1", "look", '{"a": '), ("c2", "look", "")))

        async with opened(server.base_url) as model:
            reply = await model.complete(QUESTION)

        assert [call.arguments_json for call in reply.tool_calls] == ['{"a": ', ""]
        assert reply.finish_reason is FinishReason.TOOL_CALLS

    async def test_a_reply_of_five_megabytes_is_taken(self, server: ScriptedModel) -> None:
        server.script(says("备份" * 833_333))

        async with opened(server.base_url) as model:
            reply = await model.complete(QUESTION)

        assert len(reply.text) == 1_666_666

    @pytest.mark.parametrize("piece", [1, 7, 4096])
    async def test_a_reply_in_pieces_comes_whole(self, server: ScriptedModel, piece: int) -> None:
        """Case 22, over HTTP: whatever the size of the network reads."""
        body = (CASES / "22-stream-deltas" / "stream.txt").read_bytes()
        server.script(raw(body, content_type="text/event-stream", piece=piece))

        async with opened(server.base_url) as model:
            reply = await model.complete(QUESTION)

        assert [call.arguments_json for call in reply.tool_calls] == [
            '{"query":"备份"}',
            '{"query":"city"}',
        ]

    async def test_a_model_that_needs_it_is_asked_for_pieces(self, server: ScriptedModel) -> None:
        server.script(says("On b1."))

        async with opened(server.base_url, stream=True) as model:
            reply = await model.complete(QUESTION)

        assert (reply.text, reply.usage) == ("On b1.", Usage(10, 5))
        assert server.requests[0].json["stream"] is True
        assert server.requests[0].json["stream_options"] == {"include_usage": True}

    async def test_an_empty_list_of_choices_is_an_empty_answer(self, server: ScriptedModel) -> None:
        server.script(EMPTY_CHOICES)

        async with opened(server.base_url) as model:
            with pytest.raises(EmptyAnswerError):
                await model.complete(QUESTION)

        assert len(server.requests) == 1


def tagged(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def asks(what: str) -> str:
    return tagged("look", f'{{"what": "{what}"}}')


class TestToolsInText:
    """A whole conversation with a model whose server knows neither tools nor their results."""

    @pytest.mark.parametrize("stream", [False, True])
    async def test_a_conversation_with_tools(self, server: ScriptedModel, stream: bool) -> None:
        look = PlainTool(gives=lambda arguments: ToolResult(f"{arguments['what']} is on b1."))
        server.script(
            says("<think>Hm.</think>I look.\n" + "\n".join(map(asks, ("x", "y")))),
            says('```json\n{"name": "look", "arguments": {"what": {}}}\n```'),
            says('<tool_call>{"name": "look", "arguments": {"what": "z}}</tool_call>'),
            says(tagged("gone", "{}")),
            says("Both are on b1."),
        )

        async with opened(server.base_url, stream=stream, tool_protocol=ToolProtocol.TAGS) as model:
            scene = Scene(model, [look])
            ending = await scene.work()

        assert ending.stop_reason is StopReason.END_TURN
        assert look.ran == [{"what": "x"}, {"what": "y"}]
        assert [call.name for each in scene.journal.messages for call in each.tool_calls] == [
            *["look"] * 4,
            "gone",
        ]
        assert scene.journal.messages[1].metadata["reasoning"] == "Hm."
        assert scene.journal.last.text == "Both are on b1."
        bodies = [request.json for request in server.requests]
        assert not any("tools" in body for body in bodies)
        last = bodies[-1]["messages"]
        assert all(each.keys() == {"role", "content"} for each in last)
        assert [each["role"] for each in last] == ["system", *["user", "assistant"] * 4, "user"]
        assert '"name": "look", "description": "The tool look."' in last[0]["content"]
        assert last[2]["content"] == "I look.\n" + "\n".join(map(asks, ("x", "y")))
        results = [each["content"] for each in last[3::2]]
        assert results[0] == (
            "<tool_response>\nx is on b1.\n</tool_response>\n\n"
            "<tool_response>\ny is on b1.\n</tool_response>\n"
            "If this does not hold the answer, call another tool. Otherwise answer the question "
            "from it now, in words."
        )
        assert "the arguments do not fit" in results[1]
        assert "the arguments are not a JSON object" in results[2]
        assert "there is no tool 'gone'; there are: look" in results[3]

    async def test_the_closing_question_tells_of_no_tools(self, server: ScriptedModel) -> None:
        server.script(says(asks("x")), says(asks("y")))

        async with opened(server.base_url, tool_protocol=ToolProtocol.TAGS) as model:
            settings = AgentSettings("Helper", limits=RunLimits(max_steps=1))
            scene = Scene(model, [PlainTool()], settings)
            ending = await scene.work()

        assert ending.stop_reason is StopReason.MAX_STEPS
        assert "<tools>" not in server.requests[1].json["messages"][0]["content"]
        assert "<tool_call>" not in scene.journal.last.text

    async def test_a_native_model_may_print_its_call(self, server: ScriptedModel) -> None:
        look = PlainTool()
        server.script(
            says('```json\n{"name": "look", "arguments": {"what": "x"}}\n```'), says("On b1.")
        )

        async with opened(server.base_url) as model:
            scene = Scene(model, [look])
            await scene.work()

        assert look.ran == [{"what": "x"}]
        assert scene.journal.last.text == "On b1."
        assert server.requests[1].json["messages"][-1]["role"] == "tool"


def replied(name: str) -> Reply:
    """A reply of case 23."""
    return message(case("23-null-content-and-reasoning", "replies.json")[name])


class TestCase23:
    """Two rounds over HTTP; what was said in the first goes back in the second."""

    async def sent_back(
        self, server: ScriptedModel, name: str, *, send_reasoning: bool = False
    ) -> dict[str, Any]:
        """The message as the model's second question holds it."""
        server.script(replied(name), says("On b1."))
        async with opened(server.base_url, send_reasoning=send_reasoning) as model:
            await Scene(model, [PlainTool("query_knowledge")]).work()

        _, second = server.requests
        (back,) = [each for each in second.json["messages"] if each["role"] == "assistant"]
        assert isinstance(back, dict)
        return back

    async def test_a_null_beside_calls_goes_back_with_the_calls_unchanged(
        self, server: ScriptedModel
    ) -> None:
        back = await self.sent_back(server, "A")

        assert back.get("content") is None
        original = case("23-null-content-and-reasoning", "replies.json")["A"]
        assert back["tool_calls"] == original["tool_calls"]

    async def test_b_a_person_is_told_of_an_empty_answer_and_no_null_goes_back(
        self, server: ScriptedModel
    ) -> None:
        server.script(replied("B"), replied("B"), says("On b1."))
        async with opened(server.base_url) as model:
            scene = Scene(model)
            await scene.work()
            await Scene(model, history=scene.journal.messages).work()

        assert "no answer" in scene.journal.last.text
        said = [each for each in server.requests[-1].json["messages"] if each["role"] != "system"]
        assert [each["role"] for each in said] == ["user", "assistant", "user"]
        assert all(isinstance(each["content"], str) for each in said)

    @pytest.mark.parametrize("needed", [True, False])
    async def test_c_thoughts_go_back_where_they_are_needed_and_are_never_shown(
        self, server: ScriptedModel, needed: bool
    ) -> None:
        expected = case("23-null-content-and-reasoning", "expected.json")["C"]
        thoughts = expected["provider_needs_reasoning"]["reasoning_content"]

        back = await self.sent_back(server, "C", send_reasoning=needed)

        assert back.get("reasoning_content") == (thoughts if needed else None)
        assert thoughts not in str(back.get("content"))


class TestRepeats:
    @pytest.mark.parametrize(
        "broken",
        [
            pytest.param(fails(408), id="408"),
            pytest.param(fails(409), id="409"),
            pytest.param(fails(429, retry_after="7"), id="429"),
            pytest.param(fails(500), id="500"),
            pytest.param(fails(503, retry_after="Wed, 21 Oct 2099 07:28:00 GMT"), id="503"),
            pytest.param(HANGS_UP, id="hangs up"),
            pytest.param(TRUNCATED_BODY, id="truncated body"),
            pytest.param(TRUNCATED_JSON, id="truncated JSON"),
            pytest.param(HTML, id="HTML"),
            pytest.param(raw(b""), id="no body"),
            pytest.param(raw(b"[]"), id="a list"),
            pytest.param(raw(b'{"error": {"code": 502}}'), id="an error with status 200"),
        ],
    )
    async def test_what_may_pass_is_asked_again(self, server: ScriptedModel, broken: Reply) -> None:
        server.script(broken, broken, says("Here."))

        async with opened(server.base_url) as model:
            reply = await model.complete(QUESTION)

        assert reply.text == "Here."
        assert len(server.requests) == 3

    async def test_four_attempts_are_all(self, server: ScriptedModel) -> None:
        server.otherwise = fails(503, "at /srv/secret.py line 1")

        async with opened(server.base_url) as model:
            with pytest.raises(ModelUnavailableError) as error:
                await model.complete(QUESTION)

        assert len(server.requests) == 4
        assert error.value.message == "The server of model 'm' is unavailable (status 503)."

    async def test_a_server_that_is_not_there_is_unavailable(self) -> None:
        async with opened("http://127.0.0.1:1/v1") as model:
            with pytest.raises(ModelUnavailableError, match="cannot be reached"):
                await model.complete(QUESTION)

    @pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 422])
    async def test_a_refusal_is_never_asked_again(self, server: ScriptedModel, status: int) -> None:
        server.script(fails(status, "no such thing", location="http://127.0.0.1:1/"))

        async with opened(server.base_url) as model:
            with pytest.raises(ModelRejectedError, match=f"status {status}"):
                await model.complete(QUESTION)

        assert len(server.requests) == 1

    async def test_a_request_that_is_too_long_is_told_apart(self, server: ScriptedModel) -> None:
        server.script(fails(400, "This model's maximum context length is 8192 tokens."))

        async with opened(server.base_url) as model:
            with pytest.raises(ContextTooLongError, match="8192 tokens"):
                await model.complete(QUESTION)

    @pytest.mark.parametrize("status", [400, 401])
    async def test_no_key_is_ever_told(self, server: ScriptedModel, status: int) -> None:
        server.script(fails(status, f"Incorrect key {KEY}, sk-abc***xyz, Bearer zzz"))

        async with opened(server.base_url) as model:
            with pytest.raises(ModelRejectedError) as error:
                await model.complete(QUESTION)

        assert not any(secret in error.value.message for secret in ("hunter2", "sk-", "zzz"))

    async def test_a_flood_is_cut_off(self, server: ScriptedModel) -> None:
        server.script(FLOOD)

        async with opened(server.base_url, max_reply_bytes=1_000_000) as model:
            with pytest.raises(ModelUnavailableError, match="too large"):
                await model.complete(QUESTION)

        assert len(server.requests) == 1

    @pytest.mark.parametrize("hang", [SILENCE, HANGS_AFTER_HEADERS])
    async def test_nothing_is_waited_for_past_the_total_time(
        self, server: ScriptedModel, hang: Reply
    ) -> None:
        server.otherwise = hang

        async with opened(server.base_url, total_seconds=0.2) as model:
            async with asyncio.timeout(5):
                with pytest.raises(ModelUnavailableError, match="did not answer"):
                    await model.complete(QUESTION)

    async def test_no_pause_goes_past_the_total_time(self, server: ScriptedModel) -> None:
        server.otherwise = fails(503)
        slow = Retries(base_seconds=1e6, most_seconds=1e6)

        async with opened(server.base_url, retries=slow) as model, asyncio.timeout(5):
            with pytest.raises(ModelUnavailableError, match="status 503"):
                await model.complete(QUESTION)

        assert len(server.requests) == 1

    async def test_when_too_many_are_repeated_a_failure_is_told_at_once(
        self, server: ScriptedModel
    ) -> None:
        """Few calls have each of their repeats; a server that fails often gets no more of them."""
        server.script(*[fails(503), says("Here.")] * 10)
        server.otherwise = fails(503)

        async with opened(server.base_url) as model:
            for _ in range(10):
                await model.complete(QUESTION)
            with pytest.raises(ModelUnavailableError, match=r"status 503\)\. Too many"):
                await model.complete(QUESTION)

        assert len(server.requests) == 21


class TestCancel:
    @pytest.mark.parametrize(
        ("hang", "stream"),
        [
            (SILENCE, False),
            (SILENCE, True),
            (HANGS_AFTER_HEADERS, False),
            (replace(says("On b1."), part=0.5, then=Then.STALL), True),
        ],
    )
    async def test_the_server_s_work_is_given_up_at_once(
        self, server: ScriptedModel, hang: Reply, stream: bool
    ) -> None:
        """T-D10: the connection is closed, so that nothing goes on for nobody."""
        server.script(hang)

        async with opened(server.base_url, stream=stream) as model:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(model.complete(QUESTION))
                await server.asked(1)
                task.cancel()
            await server.abandoned()

        assert task.cancelled()

    async def test_a_probe_that_is_cancelled_lets_the_next_call_through(
        self, server: ScriptedModel
    ) -> None:
        server.script(*[fails(503)] * 5, SILENCE, says("Here."))
        lasting = BreakerPolicy(rest_seconds=0.05, most_seconds=600)

        async with opened(server.base_url, retries=Retries(attempts=1), policy=lasting) as model:
            for _ in range(5):
                with pytest.raises(ModelUnavailableError):
                    await model.complete(QUESTION)
            async with asyncio.TaskGroup() as group:
                probe = group.create_task(model.complete(QUESTION))
                await server.asked(6)
                waiting = group.create_task(model.complete(QUESTION))
                probe.cancel()

        assert waiting.result().text == "Here."


class TestEndpoints:
    async def test_the_next_is_asked_when_one_fails(self, server: ScriptedModel) -> None:
        server.script(says("From the second."))

        async with opened("http://127.0.0.1:1/v1", server.base_url) as model:
            reply = await model.complete(QUESTION)

        assert reply.text == "From the second."

    async def test_one_that_keeps_failing_is_left_alone(self, server: ScriptedModel) -> None:
        """T-D17: calls go elsewhere at no cost."""
        server.otherwise = fails(503)
        async with scripted_model() as other:
            other.otherwise = says("From the second.")
            resting = BreakerPolicy(rest_seconds=600, most_seconds=600)
            async with opened(server.base_url, other.base_url, policy=resting) as model:
                for _ in range(30):
                    await model.complete(QUESTION)

            assert [len(server.requests), len(other.requests)] == [5, 30]

    async def test_one_that_rests_is_taken_back_by_a_probe(self, server: ScriptedModel) -> None:
        server.script(*[fails(503)] * 5)
        server.otherwise = says("From the first.")
        async with scripted_model() as other:
            other.otherwise = says("From the second.")
            async with opened(server.base_url, other.base_url) as model, asyncio.timeout(20):
                while (await model.complete(QUESTION)).text != "From the first.":
                    pass

            assert len(other.requests) >= 5

    async def test_all_together_get_four_attempts(self, server: ScriptedModel) -> None:
        server.otherwise = fails(500)
        async with scripted_model() as other:
            other.otherwise = fails(500)
            async with opened(server.base_url, other.base_url) as model:
                with pytest.raises(ModelUnavailableError):
                    await model.complete(QUESTION)

            assert [len(server.requests), len(other.requests)] == [2, 2]


class TestRest:
    async def test_a_server_s_wish_is_kept(self, server: ScriptedModel) -> None:
        server.script(fails(503, retry_after="1"), says("Here."))
        begun = time.monotonic()

        async with opened(server.base_url, retries=Retries()) as model:
            reply = await model.complete(QUESTION)

        assert reply.text == "Here."
        assert time.monotonic() - begun >= 1

    async def test_a_wish_is_kept_by_other_calls_too(self, server: ScriptedModel) -> None:
        server.script(fails(429, retry_after="30"))

        async with opened(server.base_url, retries=Retries(attempts=1)) as model:
            for told in ("status 429", "status 429.*It will be tried again in (29|30) s"):
                with pytest.raises(ModelUnavailableError, match=told):
                    await model.complete(QUESTION)

        assert len(server.requests) == 1

    async def test_a_wish_that_is_too_long_is_told_at_once(self, server: ScriptedModel) -> None:
        """As far as it is kept at all."""
        server.script(fails(429, retry_after="3600"))

        async with opened(server.base_url, retries=Retries()) as model:
            with pytest.raises(ModelUnavailableError, match="tried again in 60 s") as error:
                await model.complete(QUESTION)

        assert error.value.retry_after == pytest.approx(60, abs=1)
        assert len(server.requests) == 1

    async def test_a_call_waits_until_the_server_is_back(self, server: ScriptedModel) -> None:
        """T-D17: and it has attempts left, as the calls before it probed, too."""
        server.script(*[fails(503)] * 9)
        server.otherwise = says("Here.")

        async with opened(server.base_url) as model:
            outcomes = await asyncio.gather(
                *(model.complete(QUESTION) for _ in range(4)), return_exceptions=True
            )

        assert [each.text for each in outcomes if isinstance(each, ModelReply)] == ["Here."] * 4
        assert len(server.requests) == 9 + 4
