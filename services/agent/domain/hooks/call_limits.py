"""The hook `call_limits`: bounds what is called in a run, and in a session."""

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from services.agent.domain.chat import ModelReply, ModelRequest, ToolResult
from services.agent.domain.hooks.hook import CallCounts, End, Hook, HookConfig, HookRun
from services.agent.domain.messages import ToolCall

CALL_LIMIT = "CALL_LIMIT"
"""The reason of a run that ends in ERROR at a limit."""

Bound: TypeAlias = Annotated[int, Field(ge=0, le=1_000_000)]


class Limits(HookConfig):
    """How often something may be called; an absent bound is none."""

    max_calls: Bound | None = Field(
        default=None, description="In one run, all its attempts together."
    )
    max_session_calls: Bound | None = Field(
        default=None, description="In all runs of a session together."
    )


class CallLimitsConfig(HookConfig):
    """What is bounded, and what happens at a bound."""

    model: Limits = Field(default=Limits(), description="How often the model may be asked.")
    tools: Limits = Field(
        default=Limits(), description="How often tools may be called, all together."
    )
    tool: dict[Annotated[str, Field(max_length=256)], Limits] = Field(
        default={}, max_length=64, description="How often single tools may be called, by name."
    )
    then: Literal["end", "error", "refuse"] = Field(
        default="end",
        description="What happens at a bound: the run ends with a notice, or in ERROR, or a tool "
        "call is refused and the run goes on; a model that may not be asked again ends the run.",
    )

    @model_validator(mode="after")
    def _bounds_something(self) -> "CallLimitsConfig":
        limits = (self.model, self.tools, *self.tool.values())
        if all(each == Limits() for each in limits):
            raise ValueError("must bound something")
        return self


class CallLimits(Hook[CallLimitsConfig]):
    """Bounds how often a run, or a session, asks the model and calls tools."""

    name = "call_limits"
    config_type = CallLimitsConfig

    def __init__(self, config: CallLimitsConfig) -> None:
        super().__init__(config)
        self._asked = 0
        self._others: CallCounts | None = None

    async def before_model(self, request: ModelRequest, run: HookRun) -> End | None:
        others = await self._of_others(run)
        if _reached(self.config.model, run.steps + self._asked, others.model):
            return self._end("questions to the model")
        self._asked += 1
        return None

    async def after_model(self, reply: ModelReply, run: HookRun) -> End | None:
        """End the run before calls are committed that go too far."""
        if self.config.then == "refuse" or not reply.tool_calls:
            return None
        others, before = await self._of_others(run), _calls(run)
        for place, call in enumerate(reply.tool_calls):
            what = self._bound(call, [*before, *reply.tool_calls[:place]], others)
            if what is not None:
                return self._end(what)
        return None

    async def before_tool(self, call: ToolCall, run: HookRun) -> ToolResult | None:
        """Refuse a call that goes too far; its place in the transcript tells."""
        others, before = await self._of_others(run), list[ToolCall]()
        for each in _calls(run):
            if each.id == call.id:
                break
            before.append(each)
        what = self._bound(call, before, others)
        if what is None:
            return None
        text = f"Error: not executed, because the limit of {what} is reached."
        return ToolResult(text, error="tool_call_limit")

    def _bound(self, call: ToolCall, before: Sequence[ToolCall], others: CallCounts) -> str | None:
        """What a call is one too many of; None where it may be made."""
        if _reached(self.config.tools, len(before), sum(others.tools.values())):
            return "tool calls"
        own = self.config.tool.get(call.name)
        equal = sum(each.name == call.name for each in before)
        if own is not None and _reached(own, equal, others.tools.get(call.name, 0)):
            return f"calls of {call.name}"
        return None

    async def _of_others(self, run: HookRun) -> CallCounts:
        """What the session's other runs called; they do not go on while this one does."""
        if self._others is None:
            limits = (self.config.model, self.config.tools, *self.config.tool.values())
            if any(each.max_session_calls is not None for each in limits):
                self._others = await run.history.calls_of_others(run.session_id, run.run_id)
            else:
                self._others = CallCounts()
        return self._others

    def _end(self, what: str) -> End:
        error = CALL_LIMIT if self.config.then == "error" else ""
        return End(f"I reached the limit of {what} before I was done.", error)


def _reached(limits: Limits, in_run: int, in_others: int) -> bool:
    run, session = limits.max_calls, limits.max_session_calls
    return (run is not None and in_run >= run) or (
        session is not None and in_run + in_others >= session
    )


def _calls(run: HookRun) -> list[ToolCall]:
    return [call for message in run.messages for call in message.tool_calls]
