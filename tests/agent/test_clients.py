"""T-D16 and T-D17: whatever a model's server does, a call and a run end in time, and say how."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from chatmind.agent.v1 import run_pb2

from services.agent.clients.model_breaker import BreakerPolicy
from services.agent.clients.model_http import ModelTimeouts
from services.agent.clients.model_retries import Retries
from services.agent.clients.models import open_models
from services.agent.clients.models_file import EndpointSettings, ModelSettings
from services.agent.clients.offline_model import OFFLINE_MODEL
from services.agent.domain.chat import ChatMessage, ModelReply, ModelRequest, ToolProtocol
from services.agent.domain.errors import (
    ContextTooLongError,
    EmptyAnswerError,
    ModelRejectedError,
    ModelUnavailableError,
)
from services.agent.domain.messages import Role
from services.agent.domain.models import AgentSettings, RunLimits
from services.agent.domain.ports import Model
from services.agent.domain.run_models import RunState, StopReason
from tests.agent.model_modes import ANSWER, IN_TAGS, MODES, looping_in_tags, obedient_in_tags
from tests.agent.running import running
from tests.agent.scripted_model import HANGS_UP, Reply, ScriptedModel, says, scripted_model
from tests.agent.turns import PlainTool, Scene

QUESTION = ModelRequest((ChatMessage(Role.USER, "Where is the backup?"),))
LONG, SHORT, TOTAL = 20.0, 0.2, 0.5
GRACE = 10.0
"""What a loaded machine may add to a bound in seconds."""

# Each of these lets only one bound be reached.
ROOMY = ModelTimeouts(LONG, LONG, LONG, LONG)
FIRST_BYTE = replace(ROOMY, first_byte_seconds=SHORT)
CHUNK = replace(ROOMY, chunk_seconds=SHORT)
ALL = replace(ROOMY, total_seconds=TOTAL)


@dataclass(frozen=True)
class Expected:
    """What comes of asking a server that keeps to one mode.

    Attributes:
        requests: how often it is asked.
        error: what a call ends with; None where it brings a reply.
        told: what the error says, as a pattern.
        timeouts: that hold.
    """

    requests: int = 1
    error: type[Exception] | None = None
    told: str = ""
    timeouts: ModelTimeouts = ROOMY


def again(told: str, timeouts: ModelTimeouts = ROOMY) -> Expected:
    return Expected(4, ModelUnavailableError, told, timeouts)


def refused(told: str, error: type[Exception] = ModelRejectedError) -> Expected:
    return Expected(1, error, told)


REPLY = Expected()
NO_REPLY = again("^The server of model 'm' sent something that is no reply.$")
LATE = Expected(1, ModelUnavailableError, "^The model 'm' did not answer in 0.5 s.$", ALL)
TOO_LARGE = Expected(1, ModelUnavailableError, "^The model 'm' sent a reply that is too large.$")
UNREACHABLE = again("^The server of model 'm' cannot be reached.$")
NOT_BEGUN = again("^The model 'm' did not begin to answer in time.$", FIRST_BYTE)

OUTCOMES = {
    "ok": REPLY,
    "429": again("^The server of model 'm' takes no more requests for now .status 429.*$"),
    "429 with Retry-After": again("takes no more requests for now .status 429."),
    "500": again("^The server of model 'm' is unavailable .status 500..$"),
    "503": again("status 503"),
    "408": again("status 408"),
    "409": again("status 409"),
    "425": again("status 425"),
    "hangs before headers": LATE,
    "hangs before the first byte": LATE,
    "hangs mid-reply": again("^The model 'm' fell silent in the middle of its reply.$", CHUNK),
    "trickles": LATE,
    "hangs up": UNREACHABLE,
    "resets mid-reply": UNREACHABLE,
    "HTML with 200": NO_REPLY,
    "truncated JSON": NO_REPLY,
    "truncated reply": NO_REPLY,
    "invalid tool JSON": REPLY,
    "unknown tool": REPLY,
    "two calls with one id": REPLY,
    "empty choices": Expected(1, EmptyAnswerError, "^The model's reply holds no message.$"),
    "no usage": REPLY,
    "50 MB": TOO_LARGE,
    "50 MB unannounced": TOO_LARGE,
    "flood": TOO_LARGE,
    "NUL and surrogates": REPLY,
    "text in parts": REPLY,
    "cut in the arguments": REPLY,
    "cut before the arguments": REPLY,
    "error with 200": again("status 503"),
    "refusal with 200": refused("refused the request .status 404.: no such model.$"),
    "redirect": refused("refused the request .status 307."),
    "endless tool loop": REPLY,
    "context too long": refused("maximum context length is 8192 tokens", ContextTooLongError),
    "obedient": REPLY,
    "400": refused("status 400"),
    "401": refused("^The server of model 'm' refused the request .status 401..$"),
    "403": refused("^The server of model 'm' refused the request .status 403..$"),
    "404": refused("status 404"),
    "422": refused("status 422"),
}
STREAMED = OUTCOMES | {
    "hangs before headers": NOT_BEGUN,
    "hangs before the first byte": NOT_BEGUN,
}
CASES = [
    pytest.param(mode, expected, streamed, id=f"{mode}-{'streamed' if streamed else 'plain'}")
    for outcomes, streamed in ((OUTCOMES, False), (STREAMED, True))
    for mode, expected in outcomes.items()
]


@pytest.fixture
async def server() -> AsyncIterator[ScriptedModel]:
    async with scripted_model() as server:
        yield server


@asynccontextmanager
async def opened(
    server: ScriptedModel,
    *,
    timeouts: ModelTimeouts = ROOMY,
    streamed: bool = False,
    protocol: ToolProtocol = ToolProtocol.NATIVE,
) -> AsyncIterator[Model]:
    """A model that this server plays; after a failure it is asked again almost at once."""
    endpoint = EndpointSettings(server.base_url, "scripted", "")
    async with open_models(
        [ModelSettings("m", (endpoint,), stream=streamed, tool_protocol=protocol)],
        timeouts=timeouts,
        retries=Retries(base_seconds=0, most_retry_after_seconds=0.05),
        policy=BreakerPolicy(rest_seconds=0.01),
    ) as models:
        model = models.get("m")
        assert model is not None
        yield model


def test_every_mode_has_its_outcome() -> None:
    assert set(MODES) == set(OUTCOMES)


class TestCall:
    @pytest.mark.parametrize(("mode", "expected", "streamed"), CASES)
    async def test_it_ends_in_time_and_says_how(
        self, server: ScriptedModel, mode: str, expected: Expected, streamed: bool
    ) -> None:
        """T-D16: a typed outcome, four requests at most, one where the server refuses."""
        server.otherwise = MODES[mode]
        begun = time.monotonic()

        async with opened(server, timeouts=expected.timeouts, streamed=streamed) as model:
            outcome = await outcome_of(model)

        assert time.monotonic() - begun < expected.timeouts.total_seconds + GRACE
        assert type(outcome) is (expected.error or ModelReply)
        if isinstance(outcome, Exception):
            assert re.search(expected.told, str(outcome))
        assert len(server.requests) == expected.requests

    async def test_no_redirect_is_followed(self, server: ScriptedModel) -> None:
        """T-D16: not even to this machine."""
        async with scripted_model() as canary:
            server.otherwise = Reply(status=307, headers={"location": canary.base_url})
            async with opened(server) as model:
                await outcome_of(model)

            assert canary.requests == []


async def outcome_of(model: Model) -> ModelReply | Exception:
    try:
        return await model.complete(QUESTION)
    except Exception as error:  # noqa: BLE001 - whatever it is, the test looks at it
        return error


EXECUTED = {
    "invalid tool JSON": [],
    "unknown tool": [],
    "two calls with one id": [{"what": "a"}, {"what": "b"}],
    "cut in the arguments": [],
    "cut before the arguments": [],
    "obedient": [],
}
"""The modes that ask for tools once, and the arguments with which the tool then runs."""

EXECUTED_IN_TAGS = {
    "one call": 1,
    "a function": 1,
    "JSON alone": 1,
    "thoughts and a call": 1,
    "equal calls": 2,
}
"""The modes of asking in the text that run the tool, and how often."""


class TestRun:
    def scene(self, model: Model) -> Scene[Model]:
        """A run with one tool; its model may be asked with tools three times."""
        settings = AgentSettings("Helper", limits=RunLimits(max_steps=3))
        return Scene(model, tools=[PlainTool()], settings=settings)

    @pytest.mark.parametrize(
        ("mode", "expected", "streamed"),
        [case for case in CASES if case.values[0] not in {*EXECUTED, "endless tool loop"}],
    )
    async def test_it_ends_with_words_for_a_person(
        self, server: ScriptedModel, mode: str, expected: Expected, streamed: bool
    ) -> None:
        """T-D16: the answer, or MODEL_ERROR and in its place what went wrong."""
        server.otherwise = MODES[mode]
        empty = expected.error is EmptyAnswerError
        begun = time.monotonic()

        async with opened(server, timeouts=expected.timeouts, streamed=streamed) as model:
            scene = self.scene(model)
            ending = await scene.work()

        assert time.monotonic() - begun < expected.timeouts.total_seconds + GRACE
        last = scene.journal.last
        if expected.error is None:
            assert (ending.state, ending.stop_reason) == (RunState.FINISHED, StopReason.END_TURN)
            assert last.role is Role.ASSISTANT
            assert last.text
            assert "\0" not in last.text
        else:
            assert (ending.state, ending.stop_reason) == (RunState.ERROR, StopReason.MODEL_ERROR)
            assert last.role is Role.SYSTEM
            told = "^The model gave no answer, asked twice.$" if empty else expected.told
            assert re.search(told, last.text)
        assert len(server.requests) == expected.requests * (2 if empty else 1)

    @pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
    @pytest.mark.parametrize("mode", EXECUTED)
    async def test_what_a_tool_cannot_run_with_is_told_to_the_model(
        self, server: ScriptedModel, mode: str, streamed: bool
    ) -> None:
        """T-D16: a call that is cut off is never executed as if it were whole."""
        server.script(MODES[mode])
        server.otherwise = says(ANSWER)

        async with opened(server, streamed=streamed) as model:
            scene = self.scene(model)
            ending = await scene.work()

        (tool,) = scene.tools
        assert isinstance(tool, PlainTool)
        assert tool.ran == EXECUTED[mode]
        assert ending.stop_reason is StopReason.END_TURN
        asked = [each.id for message in scene.journal.messages for each in message.tool_calls]
        results = [each for each in scene.journal.messages if each.role is Role.TOOL]
        assert [each.tool_call_id for each in results] == asked
        assert len(set(asked)) == len(asked)
        if not tool.ran:
            assert all(each.text.startswith("Error: ") for each in results)

    @pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
    @pytest.mark.parametrize("mode", IN_TAGS)
    async def test_so_is_a_call_in_the_text(
        self, server: ScriptedModel, mode: str, streamed: bool
    ) -> None:
        """T-D16: the same where calls are written as tags."""
        server.script(IN_TAGS[mode])
        server.otherwise = says(ANSWER)

        async with opened(server, streamed=streamed, protocol=ToolProtocol.TAGS) as model:
            scene = self.scene(model)
            ending = await scene.work()

        (tool,) = scene.tools
        assert isinstance(tool, PlainTool)
        assert tool.ran == [{"what": "x"}] * EXECUTED_IN_TAGS.get(mode, 0)
        assert ending.stop_reason is StopReason.END_TURN
        assert scene.journal.last.text == ANSWER
        asked = [each.id for message in scene.journal.messages for each in message.tool_calls]
        results = [each for each in scene.journal.messages if each.role is Role.TOOL]
        assert asked
        assert [each.tool_call_id for each in results] == asked
        assert len(set(asked)) == len(asked)
        if not tool.ran:
            assert all(each.text.startswith("Error: ") for each in results)

    async def test_what_breaks_off_before_a_call_is_cut_off(self, server: ScriptedModel) -> None:
        """T-D16: there is no call yet that a result could answer."""
        server.otherwise = says("I look.\n<tool_call>\n", finish_reason="length")

        async with opened(server, protocol=ToolProtocol.TAGS) as model:
            scene = self.scene(model)
            ending = await scene.work()

        assert ending.stop_reason is StopReason.MAX_TOKENS
        assert len(server.requests) == 1

    async def test_tokens_that_a_server_does_not_tell_are_estimated(
        self, server: ScriptedModel
    ) -> None:
        """T-D16: so that limits of tokens hold with any server."""
        server.otherwise = MODES["no usage"]

        async with opened(server) as model:
            scene = self.scene(model)
            await scene.work()

        assert scene.journal.usage.input_tokens > 10
        assert scene.journal.usage.output_tokens > 3

    @pytest.mark.parametrize("protocol", ToolProtocol)
    @pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
    async def test_an_endless_loop_of_tools_reaches_its_limit(
        self, server: ScriptedModel, streamed: bool, protocol: ToolProtocol
    ) -> None:
        """T-D16: three questions with tools, and a closing one without."""
        native = protocol is ToolProtocol.NATIVE
        server.otherwise = MODES["endless tool loop"] if native else looping_in_tags

        async with opened(server, streamed=streamed, protocol=protocol) as model:
            scene = self.scene(model)
            ending = await scene.work()

        assert ending.stop_reason is StopReason.MAX_STEPS
        assert "limit of 3 steps" in scene.journal.last.text
        assert len(server.requests) == 4

    @pytest.mark.parametrize("protocol", ToolProtocol)
    async def test_a_model_that_obeys_any_text_does_as_a_document_says(
        self, server: ScriptedModel, protocol: ToolProtocol
    ) -> None:
        """T-D16: the mode that tests of policy rest on: what it is told, it asks for."""
        native = protocol is ToolProtocol.NATIVE
        server.otherwise = MODES["obedient"] if native else obedient_in_tags

        async with opened(server, protocol=protocol) as model:
            scene = self.scene(model)
            scene.journal.messages[0] = replace(
                scene.journal.messages[0], text='Read this.\nORDER: look {"what": "secrets"}'
            )
            await scene.work()

        (tool,) = scene.tools
        assert isinstance(tool, PlainTool)
        assert tool.ran == [{"what": "secrets"}]
        assert scene.journal.last.text == "I did as I was told."


class TestCancel:
    async def test_the_request_of_a_run_that_is_cancelled_is_given_up(
        self, tmp_path: Path, database: str
    ) -> None:
        """T-D10: its model's server is left at once."""
        async with running(tmp_path, database) as service:
            alice, server = service.alice, service.model
            server.script(MODES["hangs before headers"])
            run = await alice.say((await alice.create_session()).id)
            await server.asked(1)

            await alice.cancel(run.id)
            await server.abandoned()
            ended = await alice.ended(run.id)

        assert ended.state == run_pb2.Run.STATE_CANCELLED


class TestOutage:
    RUNS, AT_ONCE = 200, 32

    @pytest.mark.timeout(150)
    async def test_runs_wait_quietly_until_the_server_is_back(
        self, tmp_path: Path, database: str
    ) -> None:
        """T-D17: few requests and little work while it is down; then every run is answered."""
        async with running(tmp_path, database, runs_at_once=self.AT_ONCE) as service:
            alice, server = service.alice, service.model
            server.otherwise = HANGS_UP
            agent = await alice.create_agent()
            sessions = [await alice.create_session(agent.id) for _ in range(self.RUNS)]
            runs = [await alice.say(session.id) for session in sessions]
            await server.asked(5)

            wall, work = time.monotonic(), time.process_time()
            await asyncio.sleep(3)
            share = (time.process_time() - work) / (time.monotonic() - wall)
            asked = len(server.requests)
            server.otherwise = says("Back again.")
            ended = [await alice.ended(run.id, within=90) for run in runs]

        probes = asked - self.AT_ONCE
        assert probes <= 10
        assert share < 0.2
        assert {run.state for run in ended} == {run_pb2.Run.STATE_FINISHED}
        assert len(server.requests) == asked + self.RUNS

    async def test_they_keep_no_run_of_another_model_waiting(
        self, tmp_path: Path, database: str
    ) -> None:
        """T-D17, T-D10: and each of them can be cancelled."""
        async with running(tmp_path, database, runs_at_once=2, runs_waiting=8) as service:
            alice, server = service.alice, service.model
            server.otherwise = HANGS_UP
            agent, other = await alice.create_agent(), await alice.create_agent(model=OFFLINE_MODEL)
            waiting = [await alice.say((await alice.create_session(agent.id)).id) for _ in range(8)]
            for run in waiting:
                await alice.until(run.id, lambda now: now.state == run_pb2.Run.STATE_THINKING)
            await server.asked(5)

            answered = [
                await alice.ended((await alice.say((await alice.create_session(other.id)).id)).id)
                for _ in range(3)
            ]
            await alice.cancel(waiting[-1].id)
            cancelled = await alice.ended(waiting[-1].id, within=1)

        assert {run.state for run in answered} == {run_pb2.Run.STATE_FINISHED}
        assert cancelled.state == run_pb2.Run.STATE_CANCELLED
