import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from services.agent.domain.chat import ChatMessage, ModelReply, ModelRequest, ToolResult
from services.agent.domain.errors import ModelUnavailableError
from services.agent.domain.hooks.hook import AskAgain, CallTools, End, OnFailure
from services.agent.domain.ledger import ToolCallState
from services.agent.domain.messages import Role, ToolCall
from services.agent.domain.models import AgentSettings, HookSetting, RunLimits
from services.agent.domain.run_models import RunError, RunState, StopReason, Usage
from tests.agent.domain.hooks.scripted import Log, hooked, scene_of, scripted_hook
from tests.agent.turns import PlainTool, WorkerLostError, call, calls, says

LOOK = calls(call("a"), text="Let me look.")


def saying(text: str) -> ChatMessage:
    return ChatMessage(Role.USER, text)


async def fail(*_: object) -> None:
    raise RuntimeError("the hook's own fault")


async def hang(*_: object) -> None:
    await asyncio.Event().wait()


class TestOrder:
    async def test_positions_stand_around_every_step_like_the_skins_of_an_onion(self) -> None:
        log = Log()
        inner, outer = scripted_hook("a", log, hook_priority=2), scripted_hook("b", log)
        outer.priority = 1

        await hooked(scene_of(LOOK, says("Done.")), inner, outer).work()

        assert log.called == [
            "b.before_agent",
            "a.before_agent",
            "b.before_model",
            "a.before_model",
            "a.after_model",
            "b.after_model",
            "b.before_tool",
            "a.before_tool",
            "a.after_tool",
            "b.after_tool",
            "b.before_model",
            "a.before_model",
            "a.after_model",
            "b.after_model",
            "a.after_agent",
            "b.after_agent",
        ]

    async def test_of_equal_priority_the_name_decides(self) -> None:
        log = Log()

        await hooked(scene_of(says("x")), scripted_hook("b", log), scripted_hook("a", log)).work()

        assert log.called[:2] == ["a.before_agent", "b.before_agent"]

    async def test_an_agent_may_give_a_hook_another_priority(self) -> None:
        log = Log()
        scene = hooked(scene_of(says("x")), scripted_hook("a", log), scripted_hook("b", log))
        scene.settings = AgentSettings("x", hooks=(HookSetting("a"), HookSetting("b", priority=-1)))

        await scene.work()

        assert log.called[:2] == ["b.before_agent", "a.before_agent"]
        assert scene.journal.offered is not None
        assert scene.journal.offered.hooks == ("b", "a")


class TestChanges:
    async def test_a_request_changes_for_its_question_alone(self) -> None:
        def shorter(request: ModelRequest) -> ModelRequest:
            options = replace(request.options, temperature=0.5)
            return replace(request, messages=(*request.messages, saying("now")), options=options)

        scene = hooked(scene_of(LOOK, says("x")), scripted_hook("a", Log(), before_model=shorter))

        await scene.work()

        first, second = scene.model.requests
        assert [each.text for each in first.messages] == ["Where is the backup?", "now"]
        assert [each.text for each in second.messages][-2:] == ["found", "now"]
        assert first.options.temperature == 0.5
        assert "now" not in scene.journal.texts

    async def test_a_reply_changes_before_it_is_committed(self) -> None:
        hook = scripted_hook(
            "a", Log(), after_model=lambda reply: replace(reply, text=reply.text.upper())
        )
        scene = hooked(scene_of(LOOK, says("done")), hook)

        await scene.work()

        assert scene.journal.texts[1:] == ["LET ME LOOK.", "found", "DONE"]
        assert scene.journal.usage == Usage(20, 10)
        assert "hook" not in scene.journal.last.metadata

    async def test_arguments_change_and_are_checked_again(self) -> None:
        def other(asked: ToolCall) -> ToolCall:
            wrong = asked.id == "b"
            return replace(asked, arguments_json='{"what": []}' if wrong else '{"what": "y"}')

        scene = hooked(
            scene_of(calls(call("a"), call("b")), says("x")),
            scripted_hook("h", Log(), before_tool=other),
        )
        tool = PlainTool()
        scene.tools = [tool]

        await scene.work()

        assert tool.ran == [{"what": "y"}]
        assert scene.journal.messages[3].metadata["error"] == "invalid_arguments"
        assert scene.journal.messages[1].tool_calls[0].arguments_json == '{"what": "x"}'

    async def test_a_call_may_be_refused_with_a_result_that_hooks_further_out_see(self) -> None:
        log = Log()
        refusing = scripted_hook(
            "refuse", log, before_tool=lambda asked: ToolResult("No.", error="refused")
        )
        outer = scripted_hook(
            "outer",
            log,
            hook_priority=1,
            after_tool=lambda result: replace(result, text=f"({result.text})"),
        )
        tool = PlainTool()
        scene = hooked(scene_of(LOOK, says("x")), refusing, outer)
        scene.tools = [tool]

        await scene.work()

        assert tool.ran == []
        assert scene.journal.messages[2].text == "(No.)"
        assert scene.journal.messages[2].metadata["error"] == "refused"
        assert "refuse.after_tool" not in log.called

    async def test_results_that_are_errors_are_seen_too(self) -> None:
        hook = scripted_hook(
            "a", Log(), after_tool=lambda result: replace(result, text=f"seen: {result.error}")
        )
        scene = hooked(scene_of(calls(call("a", "nothing")), says("x")), hook)

        await scene.work()

        assert scene.journal.messages[2].text == "seen: unknown_tool"

    async def test_last_words_change_whoever_says_them(self) -> None:
        hook = scripted_hook("a", Log(), after_agent=lambda text: f"{text} Bye.")
        scene = hooked(scene_of(LOOK, ModelUnavailableError("down")), hook)

        await scene.work()

        assert scene.journal.last.text == "down Bye."
        assert scene.journal.endings[0].error == RunError("MODEL_UNAVAILABLE", "down Bye.")


class TestEnd:
    @pytest.mark.parametrize("position", ["before_agent", "before_model"])
    async def test_before_anything_is_asked(self, position: str) -> None:
        hook = scripted_hook("gate", Log(), acts={position: lambda _: End("Closed.")})
        scene = hooked(scene_of(), hook)

        ending = await scene.work()

        assert (ending.state, ending.stop_reason) == (RunState.FINISHED, StopReason.HOOK)
        assert scene.journal.last.role is Role.ASSISTANT
        assert scene.journal.last.text == "Closed."
        assert scene.journal.last.metadata == {"hook": "gate"}
        assert (scene.model.requests, scene.journal.steps) == ([], 0)

    async def test_in_place_of_a_reply_that_is_paid_for(self) -> None:
        hook = scripted_hook("gate", Log(), after_model=lambda _: End("Enough."))
        scene = hooked(scene_of(LOOK), hook)

        await scene.work()

        assert scene.journal.texts[1:] == ["Enough."]
        assert (scene.journal.steps, scene.journal.usage) == (1, Usage(10, 5))

    async def test_as_an_error(self) -> None:
        hook = scripted_hook("gate", Log(), after_model=lambda _: End("Too much.", "TOO_MUCH"))
        scene = hooked(scene_of(LOOK), hook)

        ending = await scene.work()

        assert ending.error == RunError("TOO_MUCH", "Too much.")
        assert (ending.state, ending.stop_reason) == (RunState.ERROR, StopReason.HOOK)
        assert scene.journal.last.role is Role.SYSTEM

    async def test_hooks_further_out_see_what_stands_in_the_models_place(self) -> None:
        log = Log()
        inner = scripted_hook("gate", log, before_model=lambda _: End("secret"))
        outer = scripted_hook(
            "mask",
            log,
            hook_priority=1,
            after_model=lambda reply: replace(reply, text=reply.text.replace("secret", "***")),
        )
        scene = hooked(scene_of(), inner, outer)

        await scene.work()

        assert scene.journal.last.text == "***"
        assert "gate.after_model" not in log.called


class TestCallTools:
    @pytest.mark.parametrize("position", ["before_model", "after_model"])
    async def test_calls_are_committed_as_any_and_answered(self, position: str) -> None:
        jumps = [CallTools((call("a"), call("a")), "Looking.")]
        hook = scripted_hook("h", Log(), acts={position: lambda _: jumps.pop() if jumps else None})
        before = [says("dropped")] if position == "after_model" else []
        scene = hooked(scene_of(*before, says("Done.")), hook)

        await scene.work()

        asked = scene.journal.messages[1]
        assert (asked.role, asked.text) == (Role.ASSISTANT, "Looking.")
        assert [each.id for each in asked.tool_calls] == ["a", "a_2"]
        assert asked.metadata == {"hook": "h"}
        assert scene.journal.texts[2:] == ["found", "found", "Done."]
        assert scene.journal.steps == 2
        assert scene.journal.usage == Usage(10, 5) + Usage(*(10, 5) if before else (0, 0))

    async def test_no_end_of_calls_is_stopped_by_the_limits(self) -> None:
        numbers = iter(range(1000))
        hook = scripted_hook(
            "h",
            Log(),
            before_model=lambda _: CallTools(
                (call("c", arguments=f'{{"what": "{next(numbers)}"}}'),)
            ),
        )
        scene = scene_of()
        scene.settings = AgentSettings("x", limits=RunLimits(max_steps=3))

        ending = await hooked(scene, hook).work()

        assert ending.stop_reason is StopReason.MAX_STEPS
        assert scene.journal.steps == 4
        assert len(scene.journal.calls) == 3


class TestAskAgain:
    async def test_the_model_reads_its_reply_and_the_note(self) -> None:
        def check(reply: ModelReply) -> AskAgain | None:
            return AskAgain("In JSON, please.") if reply.text == "five" else None

        scene = hooked(
            scene_of(says("five"), says("5")), scripted_hook("h", Log(), after_model=check)
        )

        ending = await scene.work()

        assert [(each.role, each.text) for each in scene.model.requests[1].messages[-2:]] == [
            (Role.ASSISTANT, "five"),
            (Role.USER, "In JSON, please."),
        ]
        assert (ending.stop_reason, scene.journal.texts[1:]) == (StopReason.END_TURN, ["5"])
        assert (scene.journal.steps, scene.journal.usage) == (2, Usage(20, 10))

    @pytest.mark.parametrize("position", ["before_model", "after_model"])
    async def test_asking_for_ever_is_stopped_by_the_limits(self, position: str) -> None:
        hook = scripted_hook("h", Log(), acts={position: lambda _: AskAgain("Again.")})
        scene = scene_of(otherwise=lambda number: says(f"answer {number}"))
        scene.settings = AgentSettings("x", limits=RunLimits(max_steps=3))

        ending = await hooked(scene, hook).work()

        assert ending.stop_reason is StopReason.MAX_STEPS
        assert scene.journal.steps == 4
        assert scene.journal.last.text == "I reached the limit of 3 steps before I was done."


class TestErrors:
    async def test_the_first_hook_with_an_answer_ends_the_run_with_it(self) -> None:
        log = Log()
        told: list[RunError] = []
        hooks = [
            scripted_hook("a", log, on_error=told.append),
            scripted_hook("b", log, on_error=lambda _: End("Come back later.")),
            scripted_hook("c", log),
        ]
        scene = hooked(scene_of(LOOK, ModelUnavailableError("down")), *hooks)

        ending = await scene.work()

        assert told == [RunError("MODEL_UNAVAILABLE", "down")]
        assert (ending.state, ending.stop_reason) == (RunState.FINISHED, StopReason.HOOK)
        assert scene.journal.last.text == "Come back later."
        assert scene.journal.last.metadata["hook"] == "b"
        assert scene.journal.steps == 2
        assert "c.on_error" not in log.called

    async def test_an_empty_answer_is_an_error_too(self) -> None:
        hook = scripted_hook("a", Log(), on_error=lambda error: End(error.reason))
        scene = hooked(scene_of(says(""), says("")), hook)

        await scene.work()

        assert scene.journal.last.text == "EMPTY_ANSWER"

    async def test_a_hook_that_fails_on_an_error_leaves_it_as_it_is(self) -> None:
        scene = hooked(
            scene_of(ModelUnavailableError("down")), scripted_hook("a", Log(), on_error=fail)
        )

        ending = await scene.work()

        assert ending.error == RunError("MODEL_UNAVAILABLE", "down")


FAILURES = {"raises": fail, "hangs": hang, "gives nonsense": lambda *_: 5}
POSITIONS = ["before_agent", "before_model", "after_model", "after_agent"]


class TestFailures:
    @pytest.mark.parametrize("failure", FAILURES)
    @pytest.mark.parametrize("position", POSITIONS)
    async def test_the_run_fails_where_it_cannot_do_without(
        self, position: str, failure: str
    ) -> None:
        hook = scripted_hook("h", Log(), hook_seconds=0.05, acts={position: FAILURES[failure]})
        scene = hooked(scene_of(says("secret")), hook)

        ending = await scene.work()

        message = "The hook h failed, and this agent does not go on without it."
        assert ending.error == RunError("HOOK_FAILED", message)
        assert (ending.state, ending.stop_reason) == (RunState.ERROR, StopReason.HOOK)
        assert scene.journal.texts[1:] == [message]

    @pytest.mark.parametrize("failure", FAILURES)
    @pytest.mark.parametrize("position", [*POSITIONS, "before_tool", "after_tool"])
    async def test_the_hook_is_passed_over_where_it_says_so(
        self, position: str, failure: str
    ) -> None:
        hook = scripted_hook(
            "h",
            Log(),
            hook_seconds=0.05,
            failing=OnFailure.SKIP,
            acts={position: FAILURES[failure]},
        )
        scene = hooked(scene_of(LOOK, says("Done.")), hook)

        ending = await scene.work()

        assert ending.stop_reason is StopReason.END_TURN
        assert scene.journal.texts[1:] == ["Let me look.", "found", "Done."]

    @pytest.mark.parametrize("failure", FAILURES)
    @pytest.mark.parametrize("position", ["before_tool", "after_tool"])
    async def test_around_tools_each_call_gets_its_result_and_then_the_run_fails(
        self, position: str, failure: str
    ) -> None:
        hook = scripted_hook("h", Log(), hook_seconds=0.05, acts={position: FAILURES[failure]})
        tool = PlainTool()
        scene = hooked(scene_of(calls(call("a"), call("b"))), hook)
        scene.tools = [tool]

        ending = await scene.work()

        assert len(tool.ran) == (0 if position == "before_tool" else 2)
        results = scene.journal.messages[2:4]
        assert [each.metadata["error"] for each in results] == ["hook_failed"] * 2
        assert "found" not in scene.journal.texts
        assert ending.error is not None
        assert ending.error.reason == "HOOK_FAILED"

    async def test_after_a_crash_the_run_still_fails_for_it(self) -> None:
        scene = hooked(scene_of(LOOK), scripted_hook("h", Log(), before_tool=fail))
        scene.journal.dies_at = 3
        with suppress(WorkerLostError):
            await scene.work()
        assert scene.journal.last.metadata["error"] == "hook_failed"

        ending = await scene.work()

        assert ending.error is not None
        assert ending.error.reason == "HOOK_FAILED"

    async def test_a_request_with_a_call_and_no_result_never_reaches_a_model(self) -> None:
        def without_results(request: ModelRequest) -> ModelRequest:
            kept = tuple(each for each in request.messages if each.role is not Role.TOOL)
            return replace(request, messages=kept)

        scene = hooked(scene_of(LOOK), scripted_hook("h", Log(), before_model=without_results))

        ending = await scene.work()

        assert ending.stop_reason is StopReason.HOOK
        assert len(scene.model.requests) == 1

    async def test_a_call_keeps_its_id_and_its_tool(self) -> None:
        hook = scripted_hook("h", Log(), before_tool=lambda asked: replace(asked, name="other"))
        scene = hooked(scene_of(LOOK), hook)

        assert (await scene.work()).stop_reason is StopReason.HOOK

    async def test_an_agent_does_not_answer_without_a_hook_that_is_gone(self) -> None:
        scene = scene_of(says("secret"))
        scene.settings = AgentSettings("x", hooks=(HookSetting("gone"),))

        ending = await scene.work()

        assert ending.error is not None
        assert (ending.stop_reason, ending.error.reason) == (StopReason.HOOK, "UNKNOWN_HOOK")
        assert scene.model.requests == []


class TestCrash:
    @pytest.mark.parametrize("commits_last", [True, False])
    @pytest.mark.parametrize("write", range(1, 8))
    async def test_nothing_is_lost_or_doubled_wherever_the_worker_dies(
        self, write: int, commits_last: bool
    ) -> None:
        log = Log()
        hook = scripted_hook(
            "h",
            log,
            after_model=lambda reply: replace(reply, text=f"<{reply.text}>"),
            after_tool=lambda result: replace(result, text=f"<{result.text}>"),
            after_agent=lambda text: f"{text}!",
        )

        async def answer(request: ModelRequest) -> ModelReply:
            rounds = sum(message.role is Role.TOOL for message in request.messages)
            return says("done") if rounds == 2 else calls(call(f"c{rounds}"), text="look")

        scene = hooked(scene_of(*[answer] * 10), hook)
        scene.journal.dies_at, scene.journal.commits_last = write, commits_last
        with suppress(WorkerLostError):
            await scene.work()
        scene.journal.dies_at = 0
        if not scene.journal.endings:
            await scene.work()

        assert scene.journal.texts[1:] == ["<look>", "<found>", "<look>", "<found>", "<done>!"]
        assert set(scene.journal.calls.values()) == {ToolCallState.DONE}
        assert len(scene.journal.endings) == 1

    async def test_before_agent_is_not_called_again_once_a_step_is_committed(self) -> None:
        log = Log()
        scene = hooked(scene_of(LOOK, says("x")), scripted_hook("h", log))
        scene.journal.dies_at = 2
        with suppress(WorkerLostError):
            await scene.work()

        await scene.work()

        assert log.called.count("h.before_agent") == 1


class TestNothing:
    async def test_an_agent_without_hooks_asks_its_model_directly(self) -> None:
        scene = scene_of(LOOK, says("x"))

        await scene.work()

        assert scene.journal.offered is not None
        assert scene.journal.offered.hooks == ()
        assert scene.journal.texts[1:] == ["Let me look.", "found", "x"]
