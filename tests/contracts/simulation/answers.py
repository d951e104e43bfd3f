"""What models and tools of the simulation say and do, by name."""

import asyncio

from services.agent.domain.chat import (
    ChatMessage,
    FinishReason,
    ModelReply,
    ModelRequest,
    ToolResult,
)
from services.agent.domain.errors import (
    EmptyAnswerError,
    KnowledgeUnavailableError,
    ModelRejectedError,
    ModelUnavailableError,
)
from services.agent.domain.messages import Role, ToolCall
from services.agent.domain.models import ToolCallId
from services.agent.domain.turn.tokens import estimate_message

ASK = "ask_clerk"
"""The tool that asks an agent, on all levels."""

TASK = "task"
"""What everything that an agent is asked begins with."""

REPLIES = (
    "says",
    "looks",
    "sends",
    "does both",
    "asks for five",
    "asks again",
    "asks an agent",
    "asks two agents at once",
    "asks for an unknown tool",
    "breaks its arguments",
    "gives two calls one id",
    "says nothing",
    "is cut off",
    "is down",
    "refuses",
    "answers with nothing usable",
)
RESULTS = ("finds", "fails", "breaks", "floods", "is cancelled by nobody")


class Answers:
    """Makes them, each with a number of its own."""

    def __init__(self) -> None:
        self._count = 0

    def reply(self, name: str, request: ModelRequest) -> ModelReply | Exception:
        """What a model says, within the bound that it is given."""
        match name:
            case "is down":
                return ModelUnavailableError("The model's server is down.")
            case "refuses":
                return ModelRejectedError("The model's server refuses.")
            case "answers with nothing usable":
                return EmptyAnswerError("no choices")
            case "is cut off":
                return ModelReply("Half of", finish_reason=FinishReason.LENGTH)
            case "says":
                reply = ModelReply(f"answer {self._next()}")
            case "says nothing":
                reply = ModelReply("")
            case "asks an agent":
                reply = ModelReply("", tool_calls=(self._task(),))
            case "asks two agents at once":
                calls = (self._task(), self._call("look"), self._task())
                reply = ModelReply("", tool_calls=calls)
            case _:
                reply = ModelReply("", tool_calls=tuple(self._calls(name)))
        return _bounded(reply, request.options.max_output_tokens)

    def result(self, name: str) -> ToolResult | BaseException:
        """What a tool gives."""
        match name:
            case "fails":
                return KnowledgeUnavailableError("The service is down.")
            case "breaks":
                return RuntimeError("a fault of the tool")
            case "is cancelled by nobody":
                return asyncio.CancelledError()
            case "floods":
                return ToolResult("x" * 1000)
            case _:
                return ToolResult(f"result {self._next()}")

    def _calls(self, name: str) -> list[ToolCall]:
        match name:
            case "looks":
                return [self._call("look")]
            case "sends":
                return [self._call("send")]
            case "does both":
                return [self._call("look"), self._call("send")]
            case "asks for five":
                return [self._call(tool) for tool in ("send", "look", "look", "send", "look")]
            case "asks again":
                return [self._call("look", '{"n": 0}')]
            case "asks for an unknown tool":
                return [self._call("gone")]
            case "breaks its arguments":
                return [self._call("look", "{"), self._call("send")]
            case "gives two calls one id":
                return [ToolCall(ToolCallId("c"), tool, "{}") for tool in ("look", "send")]
            case _:
                raise AssertionError(name)

    def _call(self, tool: str, arguments: str = "") -> ToolCall:
        number = self._next()
        return ToolCall(ToolCallId(f"c{number}"), tool, arguments or f'{{"n": {number}}}')

    def _task(self) -> ToolCall:
        number = self._next()
        return ToolCall(ToolCallId(f"c{number}"), ASK, f'{{"task": "{TASK} {number}"}}')

    def _next(self) -> int:
        self._count += 1
        return self._count


def _bounded(reply: ModelReply, most_tokens: int | None) -> ModelReply:
    said = ChatMessage(Role.ASSISTANT, reply.text, tool_calls=reply.tool_calls)
    if most_tokens is None or estimate_message(said) <= most_tokens:
        return reply
    return ModelReply("Half", finish_reason=FinishReason.LENGTH)
