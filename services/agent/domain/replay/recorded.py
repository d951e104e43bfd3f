"""A recorded run as a model and as tools: each says again what it said then."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from services.agent.domain.chat import (
    FinishReason,
    ModelInfo,
    ModelReply,
    ModelRequest,
    RunContext,
    ToolContext,
    ToolResult,
    ToolSpec,
)
from services.agent.domain.endings import CUT_OFF_WORDS
from services.agent.domain.errors import (
    EmptyAnswerError,
    ModelRejectedError,
    ModelUnavailableError,
)
from services.agent.domain.hooks.registry import HookSet
from services.agent.domain.ledger import call_of
from services.agent.domain.memory.models import LAST, Memory, Said
from services.agent.domain.messages import Draft, Message, Role
from services.agent.domain.models import SessionId, ToolCallId
from services.agent.domain.ports import Tool
from services.agent.domain.replay.recording import Recording
from services.agent.domain.run_models import RunError, StopReason, Usage
from services.agent.domain.turn.plan import Plan, Plans
from services.common.identity import Identity
from services.common.paging import Listing
from services.common.text import Json

_MODEL_ERRORS: Final = {
    error.reason: error for error in (ModelUnavailableError, ModelRejectedError, EmptyAnswerError)
}
_NOT_RECORDED: Final = ToolResult("Error: this call was not recorded.", error="not_recorded")


class EndOfRecordError(Exception):
    """The run was ended from outside here; what the model would have said is not known."""


def driven(recording: Recording) -> Sequence[Message]:
    """The recorded messages that come out of a replay: without what an end from outside added."""
    if not recording.ended_from_outside:
        return recording.messages
    return [each for each in recording.messages if not _added_by_end(each)]


def _added_by_end(message: Message) -> bool:
    if message.role is Role.TOOL:
        return message.metadata.get("error") in CUT_OFF_WORDS
    by_hook = "hook" in message.metadata and not message.tool_calls
    return message.role is Role.SYSTEM or "notice" in message.metadata or by_hook


class RecordedModel:
    """Gives the recorded replies, one after the other, whatever it is asked; a `ports.Model`."""

    def __init__(self, info: ModelInfo, recording: Recording) -> None:
        self._info = info
        self._recording = recording
        self._replies = _replies(driven(recording))

    @property
    def info(self) -> ModelInfo:
        """What is told of the model that is replaced."""
        return self._info

    async def complete(self, request: ModelRequest) -> ModelReply:  # noqa: ARG002 - see `Model`
        """The next reply; past the last one, what then came instead of a reply.

        Raises:
            EndOfRecordError: nothing came, as the run was ended from outside.
        """
        reply = next(self._replies, None)
        return reply if reply is not None else self._instead()

    def _instead(self) -> ModelReply:
        run = self._recording.run
        if self._recording.ended_from_outside:
            raise EndOfRecordError
        if run.error is not None:
            raise _error_of(run.error)
        cut = run.stop_reason is StopReason.MAX_TOKENS
        return ModelReply("", finish_reason=FinishReason.LENGTH if cut else FinishReason.STOP)


def _error_of(error: RunError) -> Exception:
    kind = _MODEL_ERRORS.get(error.reason)
    return EndOfRecordError() if kind is None else kind(error.message)


def _replies(messages: Sequence[Draft]) -> Iterator[ModelReply]:
    for message in messages:
        if message.role is Role.ASSISTANT and "notice" not in message.metadata:
            yield _reply(message)


def _reply(message: Draft) -> ModelReply:
    known = message.metadata
    return ModelReply(
        message.text,
        tool_calls=message.tool_calls,
        finish_reason=FinishReason(known.get("finish_reason", FinishReason.STOP.value)),
        usage=_usage(known.get("usage")),
        reasoning=str(known.get("reasoning", "")),
        model=str(known.get("served_model") or known.get("model", "")),
    )


def _usage(value: Json) -> Usage | None:
    if not isinstance(value, Mapping):
        return None
    read, written = value.get("input_tokens"), value.get("output_tokens")
    return Usage(read, written) if isinstance(read, int) and isinstance(written, int) else None


class RecordedTool:
    """Gives the recorded result of each call; is told of as the tool that it replaces."""

    def __init__(self, tool: Tool, results: Mapping[ToolCallId, ToolResult]) -> None:
        self._tool = tool
        self._results = results

    @property
    def spec(self) -> ToolSpec:
        """What a model is told of the tool that is replaced."""
        return self._tool.spec

    async def run(
        self,
        arguments: Mapping[str, Json],  # noqa: ARG002 - see `Tool`
        context: ToolContext,
    ) -> ToolResult:
        """The result of this very call."""
        return self._results.get(call_of(context.call_key), _NOT_RECORDED)


@dataclass(frozen=True, slots=True)
class RecordedPlans:
    """Plans as another makes them, with the record in place of model and tools.

    Attributes:
        plans: makes them as things are now.
        recording: what is said again.
    """

    plans: Plans
    recording: Recording

    async def plan(self, context: RunContext) -> Plan:
        """See `Plans.plan`."""
        plan = await self.plans.plan(context)
        results = {
            message.tool_call_id: _result(message)
            for message in self.recording.messages
            if message.tool_call_id is not None
        }
        tools = {name: RecordedTool(tool, results) for name, tool in plan.tools.items()}
        model = RecordedModel(plan.model.info, self.recording)
        # What hooks made of replies and results is part of the record, and they may have effects.
        return replace(plan, model=model, tools=tools, hooks=HookSet())


def _result(message: Draft) -> ToolResult:
    error, calls = message.metadata.get("error"), message.metadata.get("tool_calls")
    return ToolResult(
        message.text,
        message.citations,
        error if isinstance(error, str) else None,
        usage=_usage(message.metadata.get("usage")) or Usage(),
        tool_calls=calls if isinstance(calls, int) else 0,
    )


class NoMemories:
    """A `MemoryStore` that remembers nothing: what was said before is no part of a record."""

    async def get(self, identity: Identity, session_id: SessionId) -> Memory:  # noqa: ARG002
        return Memory()

    async def open_turn(self, identity: Identity, session_id: SessionId) -> int:  # noqa: ARG002
        return LAST

    async def put(self, *_: object, **__: object) -> Memory | None:
        return None

    async def clear(self, identity: Identity, session_id: SessionId) -> Memory:  # noqa: ARG002
        return Memory()

    async def page(self, *_: object, **__: object) -> Listing[Said]:
        return Listing([], more=False)
