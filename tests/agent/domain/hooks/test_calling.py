import asyncio
from typing import cast

import pytest

from services.agent.domain.chat import ChatMessage, ModelReply, ModelRequest, ToolResult
from services.agent.domain.hooks.calling import HookCaller, HookFailedError, check
from services.agent.domain.hooks.hook import End, Hook, HookConfig, OnFailure
from services.agent.domain.messages import Role
from services.agent.domain.models import RunId
from services.common.tasks import background_tasks
from tests.agent.turns import call


class Stubborn(Hook[HookConfig]):
    """Does not stop when it is told to."""

    name = "stubborn"
    seconds = 0.01
    on_failure = OnFailure.FAIL

    def __init__(self, config: HookConfig) -> None:
        super().__init__(config)
        self.free = asyncio.Event()

    async def wait(self) -> None:
        while not self.free.is_set():
            try:
                await self.free.wait()
            except asyncio.CancelledError:
                continue


class Patient(Stubborn):
    """Has a minute for everything."""

    seconds = 60


class TestCall:
    async def test_a_hook_that_does_not_stop_holds_nobody_up(self) -> None:
        hook = Stubborn(HookConfig())
        async with background_tasks() as tasks:
            caller = HookCaller(tasks, RunId("r1"))

            with pytest.raises(HookFailedError):
                await asyncio.wait_for(caller.call(hook, hook.wait), 5)

            hook.free.set()

    async def test_whoever_stops_the_run_stops_the_hook(self) -> None:
        hook = Patient(HookConfig())
        stopped = asyncio.Event()

        async def wait() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

        async with background_tasks() as tasks:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(HookCaller(tasks, RunId("r1")).call(hook, wait), 0.01)

            await asyncio.wait_for(stopped.wait(), 5)

    @pytest.mark.parametrize(
        "error",
        [asyncio.CancelledError(), KeyboardInterrupt(), BaseExceptionGroup("a", [SystemExit(1)])],
        ids=lambda error: type(error).__name__,
    )
    async def test_a_hook_that_raises_anything_has_failed(self, error: BaseException) -> None:
        hook = Patient(HookConfig())

        async def cancel() -> None:
            raise error

        async with background_tasks() as tasks:
            with pytest.raises(HookFailedError) as failed:
                await HookCaller(tasks, RunId("r1")).call(hook, cancel)

        assert failed.value.hook == "stubborn"


ASKED = ChatMessage(Role.ASSISTANT, "", tool_calls=(call("a"), call("b")))


def result(id_: str) -> ChatMessage:
    return ChatMessage(Role.TOOL, "found", tool_call_id=call(id_).id)


class TestCheck:
    @pytest.mark.parametrize(
        "messages",
        [
            [ASKED],
            [ASKED, result("a")],
            [ASKED, result("a"), ChatMessage(Role.USER, "x"), result("b")],
            [ASKED, result("a"), result("a"), result("b")],
            [result("a")],
            [ASKED, result("a"), result("c")],
        ],
    )
    def test_calls_and_results_that_do_not_pair_are_refused(
        self, messages: list[ChatMessage]
    ) -> None:
        with pytest.raises(ValueError, match="tool call without its result"):
            check("before_model", (), ModelRequest(tuple(messages)))

    def test_what_pairs_is_let_through(self) -> None:
        messages = (ChatMessage(Role.USER, "x"), ASKED, result("b"), result("a"), ASKED)

        check("before_model", (), ModelRequest((*messages, result("a"), result("b"))))

    @pytest.mark.parametrize(
        ("position", "given"),
        [
            ("after_model", ModelReply(cast("str", None))),
            ("after_tool", ToolResult(cast("str", 5))),
            ("before_model", ModelRequest((ChatMessage(Role.USER, cast("str", b"")),))),
            ("before_agent", End("over", error=cast("str", ValueError()))),
        ],
    )
    def test_what_holds_another_type_is_refused(self, position: str, given: object) -> None:
        with pytest.raises(TypeError, match=r"^\w+\.\w+ is a "):
            check(position, (), given)

    @pytest.mark.parametrize("reason", ["closed", "NOT NOW", "A\0", "\ud800", "A" * 65, "A\n"])
    @pytest.mark.parametrize("position", ["before_agent", "after_model", "on_error"])
    def test_a_reason_that_programs_could_not_read_is_refused(
        self, position: str, reason: str
    ) -> None:
        with pytest.raises(ValueError, match="UPPER_SNAKE_CASE"):
            check(position, (), End("over", error=reason))
        check(position, (), End("over", error="OVER_9000"))

    def test_another_type_is_refused(self) -> None:
        with pytest.raises(TypeError, match="after_agent gave a int"):
            check("after_agent", (), 5)
