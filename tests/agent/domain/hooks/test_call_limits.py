from contextlib import suppress
from typing import Any

import pytest

from services.agent.domain.hooks.call_limits import CallLimits
from services.agent.domain.hooks.hook import CallCounts
from services.agent.domain.hooks.registry import Hooks
from services.agent.domain.models import RunId, SessionId
from services.agent.domain.run_models import RunState, StopReason
from tests.agent.domain.hooks.scripted import hooked, scene_of
from tests.agent.turns import (
    PlainTool,
    Scene,
    ScriptedModel,
    WorkerLostError,
    call,
    calls,
    says,
)


def looks(number: int, name: str = "look") -> Any:
    return calls(call(f"c{number}", name, f'{{"what": "{number}"}}'))


def limited(scene: Scene[ScriptedModel], **config: Any) -> Scene[ScriptedModel]:
    return hooked(scene, CallLimits, call_limits=config)


class Earlier:
    """The session's other runs called this."""

    def __init__(self, counts: CallCounts) -> None:
        self.counts, self.asked = counts, 0

    async def calls_of_others(self, session_id: SessionId, run_id: RunId) -> CallCounts:
        self.asked += 1
        return self.counts


class TestModelCalls:
    async def test_the_run_ends_before_a_question_too_many(self) -> None:
        scene = limited(scene_of(looks(1), looks(2)), model={"max_calls": 2})

        ending = await scene.work()

        assert (ending.state, ending.stop_reason) == (RunState.FINISHED, StopReason.HOOK)
        assert scene.journal.last.text == (
            "I reached the limit of questions to the model before I was done."
        )
        assert scene.journal.last.metadata["hook"] == "call_limits"
        assert len(scene.model.requests) == 2

    async def test_or_fails(self) -> None:
        scene = limited(scene_of(looks(1)), model={"max_calls": 1}, then="error")

        ending = await scene.work()

        assert ending.error is not None
        assert (ending.state, ending.error.reason) == (RunState.ERROR, "CALL_LIMIT")

    async def test_questions_before_a_crash_count(self) -> None:
        scene = limited(scene_of(looks(1), looks(2)), model={"max_calls": 2})
        scene.journal.dies_at = 3
        with suppress(WorkerLostError):
            await scene.work()

        await scene.work()

        assert len(scene.model.requests) == 2

    async def test_those_of_the_session_count_where_they_are_bounded(self) -> None:
        scene = limited(scene_of(looks(1)), model={"max_session_calls": 6})
        earlier = Earlier(CallCounts(model=5))
        scene.hooks = Hooks([CallLimits], history=earlier)

        ending = await scene.work()

        assert ending.stop_reason is StopReason.HOOK
        assert (len(scene.model.requests), earlier.asked) == (1, 1)

    async def test_and_are_not_even_read_where_they_are_not(self) -> None:
        scene = limited(scene_of(says("x")), model={"max_calls": 6})
        earlier = Earlier(CallCounts(model=5))
        scene.hooks = Hooks([CallLimits], history=earlier)

        await scene.work()

        assert earlier.asked == 0


class TestToolCalls:
    @pytest.mark.parametrize(
        "config", [{"tools": {"max_calls": 2}}, {"tool": {"look": {"max_calls": 2}}}]
    )
    async def test_the_run_ends_before_calls_too_many_are_committed(
        self, config: dict[str, Any]
    ) -> None:
        both = calls(call("c", arguments='{"what": "b"}'), call("d", arguments='{"what": "c"}'))
        scene = limited(scene_of(looks(1), both), **config)

        ending = await scene.work()

        assert ending.stop_reason is StopReason.HOOK
        assert len(scene.journal.calls) == 1
        assert scene.journal.last.text.startswith("I reached the limit of ")

    async def test_calls_of_other_tools_do_not_count(self) -> None:
        scene = limited(
            scene_of(looks(1), looks(2), looks(3, "send"), says("Done.")),
            tool={"send": {"max_calls": 1}},
        )
        scene.tools = [PlainTool(), PlainTool("send")]

        ending = await scene.work()

        assert ending.stop_reason is StopReason.END_TURN

    async def test_a_call_too_many_is_refused_and_the_run_goes_on(self) -> None:
        tool = PlainTool()
        both = calls(call("c", arguments='{"what": "b"}'), call("d", arguments='{"what": "c"}'))
        scene = limited(
            scene_of(looks(1), both, says("Done.")), tool={"look": {"max_calls": 2}}, then="refuse"
        )
        scene.tools = [tool]

        ending = await scene.work()

        assert ending.stop_reason is StopReason.END_TURN
        assert tool.ran == [{"what": "1"}, {"what": "b"}]
        refused = scene.journal.messages[5]
        assert refused.text == "Error: not executed, because the limit of calls of look is reached."
        assert refused.metadata == {"error": "tool_call_limit"}

    async def test_those_of_the_session_count(self) -> None:
        scene = limited(
            scene_of(looks(1), says("Done.")),
            tool={"look": {"max_session_calls": 4}, "send": {"max_session_calls": 3}},
            then="refuse",
        )
        scene.hooks = Hooks([CallLimits], history=Earlier(CallCounts(tools={"look": 4})))

        await scene.work()

        assert scene.journal.messages[2].metadata == {"error": "tool_call_limit"}
