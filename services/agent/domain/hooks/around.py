"""What stands around the steps of one run: its hooks, or nothing.

The loop asks the model, executes tools and ends by way of this, and knows no hook. Where a hook
sends the run elsewhere, `Turned` brings the event that the engine goes on from.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias

import structlog

from services.agent.domain.chat import (
    ChatMessage,
    Ending,
    ModelReply,
    ModelRequest,
    ToolResult,
)
from services.agent.domain.errors import ModelRejectedError
from services.agent.domain.hooks.calling import HookCaller, HookFailedError
from services.agent.domain.hooks.hook import (
    AskAgain,
    End,
    Hook,
    HookConfig,
    HookRun,
    Jump,
    positions,
)
from services.agent.domain.messages import Role, ToolCall
from services.agent.domain.ports import Model
from services.agent.domain.run_models import RunError, RunState, StopReason, Usage
from services.agent.domain.turn.steps import Again, Ended, Event, Finish, Replied
from services.agent.domain.turn.tokens import estimate_message

HOOK_FAILED: Final = "HOOK_FAILED"
"""The reason of a run that a failing hook ends."""

HOOK_FAILED_WORD: Final = "hook_failed"
"""The error of a tool call that a failing hook kept from its result."""

Execute: TypeAlias = Callable[[ToolCall], Awaitable[ToolResult]]


class Turned(Exception):  # noqa: N818 - no error: a way to go on
    """A hook sends the run elsewhere: this event happens in place of a reply."""

    def __init__(self, event: Event) -> None:
        super().__init__()
        self.event = event


class Around(Protocol):
    """What stands around the steps of a run."""

    def ask(self, model: Model, request: ModelRequest) -> Awaitable[ModelReply]:
        """The reply to a question.

        Raises:
            Turned: a hook sends the run elsewhere.
            ServiceError: as `Model.complete` does.
        """

    def aside(self, model: Model, request: ModelRequest) -> Awaitable[ModelReply]:
        """The reply to a question that is no step of the run, such as one for a summary.

        Raises:
            ModelRejectedError: a hook would have the run go elsewhere, or failed.
            ServiceError: as `Model.complete` does.
        """

    def execute(self, call: ToolCall, execute: Execute) -> Awaitable[ToolResult]:
        """The one result of a call."""

    async def finish(self, finish: Finish) -> Finish:
        """The end of the run, as it is to be committed."""


class Nothing:
    """Around the runs of agents without hooks; satisfies `Around`."""

    def ask(self, model: Model, request: ModelRequest) -> Awaitable[ModelReply]:
        return model.complete(request)

    def aside(self, model: Model, request: ModelRequest) -> Awaitable[ModelReply]:
        return model.complete(request)

    def execute(self, call: ToolCall, execute: Execute) -> Awaitable[ToolResult]:
        return execute(call)

    async def finish(self, finish: Finish) -> Finish:
        return finish


@dataclass(frozen=True, slots=True)
class _Given:
    """What stands where the model's reply would.

    Attributes:
        reply: the model's, or a hook's in its place.
        end: the hook's wish to end the run with this.
    """

    reply: ModelReply
    end: End | None = None


class HooksAround:
    """The hooks of one run; satisfies `Around`."""

    def __init__(self, hooks: Sequence[Hook[HookConfig]], run: HookRun, caller: HookCaller) -> None:
        """Stands around a run.

        Args:
            hooks: outermost first.
            run: what they may know of it.
            caller: calls them.
        """
        self._hooks = tuple(hooks)
        self._made_of = {hook: positions(type(hook)) for hook in hooks}
        self._run = run
        self._caller = caller
        self._begun = any(message.role is Role.ASSISTANT for message in run.messages)
        self._notes: tuple[ChatMessage, ...] = ()
        self._failed: HookFailedError | None = None

    async def ask(self, model: Model, request: ModelRequest) -> ModelReply:
        usage: Usage | None = None
        try:
            self._check_last_calls()
            await self._begin()
            request = replace(request, messages=(*request.messages, *self._notes))
            request, given, depth = await self._before_model(request)
            self._notes = ()
            if given is None:
                given = _Given(await model.complete(request))
                usage = given.reply.usage or _estimated(request, given.reply)
            given = await self._after_model(given, self._hooks[:depth], usage)
        except HookFailedError as error:
            raise Turned(Ended(_failure(error), usage=usage)) from error
        if given.end is not None:
            raise Turned(_ended(given.end, given.reply, usage))
        if given.reply.hook:
            raise Turned(Replied(given.reply, usage or Usage()))
        return given.reply

    async def aside(self, model: Model, request: ModelRequest) -> ModelReply:
        notes = self._notes
        try:
            request, given, depth = await self._before_model(request)
            if given is None:
                reply = await model.complete(request)
                given = await self._after_model(_Given(reply), self._hooks[:depth], reply.usage)
        except (HookFailedError, Turned) as error:
            raise ModelRejectedError("A hook does not let this question through.") from error
        finally:
            self._notes = notes
        if given.end is not None or given.reply.hook:
            raise ModelRejectedError("A hook stands in the way of this question.")
        return given.reply

    async def execute(self, call: ToolCall, execute: Execute) -> ToolResult:
        spent = ToolResult("")

        async def noting(asked: ToolCall) -> ToolResult:
            nonlocal spent
            spent = await execute(asked)
            return spent

        try:
            result = await self._execute(call, noting)
        except HookFailedError as error:
            self._failed = error
            text = f"Error: there is no result, because the hook {error.hook} failed."
            result = ToolResult(text, error=HOOK_FAILED_WORD)
        return replace(result, usage=spent.usage, tool_calls=spent.tool_calls)

    async def finish(self, finish: Finish) -> Finish:
        if finish.ending.error is not None:
            finish = await self._rescued(finish, finish.ending.error)
        try:
            return await self._with_last_words(finish)
        except HookFailedError as error:
            return replace(finish, ending=_failure(error), reply=None, notice=error.message)

    def _at(
        self, position: str, hooks: Sequence[Hook[HookConfig]] | None = None
    ) -> list[Hook[HookConfig]]:
        among = self._hooks if hooks is None else hooks
        return [hook for hook in among if position in self._made_of[hook]]

    def _check_last_calls(self) -> None:
        """Go no further where a failing hook kept one of the last calls from its result."""
        for message in reversed(self._run.messages):
            if message.role is not Role.TOOL:
                return
            if message.metadata.get("error") == HOOK_FAILED_WORD:
                raise self._failed or HookFailedError("around a tool call")

    async def _begin(self) -> None:
        if self._begun:
            return
        self._begun = True
        for hook in self._at("before_agent"):
            end = await self._caller.call(hook, hook.before_agent, self._run)
            if end is not None:
                raise Turned(_ended(end, ModelReply(end.text, hook=hook.name), None))

    async def _before_model(self, request: ModelRequest) -> tuple[ModelRequest, _Given | None, int]:
        """The question, or what stands in place of its reply, and how many hooks were passed."""
        for hook in self._at("before_model"):
            given = await self._caller.call(hook, hook.before_model, request, self._run)
            if isinstance(given, ModelRequest):
                request = given
            elif given is not None:
                return request, self._jump(hook, given, None, Usage()), self._hooks.index(hook)
        return request, None, len(self._hooks)

    async def _after_model(
        self, given: _Given, hooks: Sequence[Hook[HookConfig]], usage: Usage | None
    ) -> _Given:
        for hook in reversed(self._at("after_model", hooks)):
            reply = given.reply
            changed = await self._caller.call(hook, hook.after_model, reply, self._run)
            if isinstance(changed, ModelReply):
                given = replace(given, reply=replace(changed, hook=reply.hook, usage=reply.usage))
            elif changed is not None:
                given = self._jump(hook, changed, reply, usage or Usage())
        return given

    def _jump(
        self, hook: Hook[HookConfig], jump: Jump, reply: ModelReply | None, usage: Usage
    ) -> _Given:
        """What the hook puts in the model's place.

        Raises:
            Turned: it wants the model to be asked again.
        """
        log = structlog.get_logger("hooks")
        log.info("hook jumps", hook=hook.name, to=type(jump).__name__, run_id=self._run.run_id)
        if isinstance(jump, AskAgain):
            said = [ChatMessage(Role.ASSISTANT, reply.text)] if reply and reply.text else []
            told = [ChatMessage(Role.USER, jump.note)] if jump.note else []
            self._notes = (*said, *told) if told else ()
            raise Turned(Again(usage))
        if isinstance(jump, End):
            return _Given(ModelReply(jump.text, hook=hook.name), jump)
        return _Given(ModelReply(jump.text, tool_calls=jump.calls, hook=hook.name))

    async def _execute(self, call: ToolCall, execute: Execute) -> ToolResult:
        result: ToolResult | None = None
        passed = self._hooks
        for hook in self._at("before_tool"):
            given = await self._caller.call(hook, hook.before_tool, call, self._run)
            if isinstance(given, ToolCall):
                call = given
            elif given is not None:
                result, passed = given, self._hooks[: self._hooks.index(hook)]
                break
        if result is None:
            result = await execute(call)
        for hook in reversed(self._at("after_tool", passed)):
            changed = await self._caller.call(hook, hook.after_tool, call, result, self._run)
            result = changed or result
        return result

    async def _rescued(self, finish: Finish, error: RunError) -> Finish:
        """The end with the first answer of a hook in place of the error, if one has any."""
        for hook in self._at("on_error"):
            try:
                end = await self._caller.call(hook, hook.on_error, error, self._run)
            except HookFailedError:
                continue  # the error stands; it is a failure already
            if end is not None:
                ended = _ended(end, ModelReply(end.text, hook=hook.name), None)
                return replace(finish, ending=ended.ending, reply=ended.reply, notice=end.text)
        return finish

    async def _with_last_words(self, finish: Finish) -> Finish:
        before = text = finish.notice if finish.reply is None else finish.reply.text
        for hook in reversed(self._at("after_agent")):
            changed = await self._caller.call(hook, hook.after_agent, text, self._run)
            text = text if changed is None else changed
        if text == before:
            return finish
        if finish.reply is not None:
            return replace(finish, reply=replace(finish.reply, text=text))
        error = finish.ending.error and replace(finish.ending.error, message=text)
        return replace(finish, ending=replace(finish.ending, error=error), notice=text)


def _failure(error: HookFailedError) -> Ending:
    failure = RunError(HOOK_FAILED, error.message)
    return Ending(RunState.ERROR, StopReason.HOOK, failure)


def _ended(end: End, reply: ModelReply, usage: Usage | None) -> Ended:
    """The end that a hook wants, in the words that other hooks have left of it."""
    if end.error:
        failure = RunError(end.error, reply.text)
        return Ended(Ending(RunState.ERROR, StopReason.HOOK, failure), usage=usage)
    return Ended(Ending(RunState.FINISHED, StopReason.HOOK), reply, usage)


def _estimated(request: ModelRequest, reply: ModelReply) -> Usage:
    said = ChatMessage(
        Role.ASSISTANT, reply.text, tool_calls=reply.tool_calls, reasoning=reply.reasoning
    )
    return Usage(sum(map(estimate_message, request.messages)), estimate_message(said))
