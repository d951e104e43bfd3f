import time
from dataclasses import replace
from typing import Any

import pytest

from services.agent.domain.chat import ChatMessage, ModelReply, ModelRequest, ToolResult, ToolSpec
from services.agent.domain.hooks.hook import AskAgain, CallTools, End
from services.agent.domain.messages import Citation, Role, ToolCall, Whole
from services.agent.domain.models import ChunkId, DocumentId, KnowledgeBaseId, ToolCallId
from services.agent.domain.run_models import Usage
from services.agent.domain.soundness import check_sound

CALL = ToolCall(ToolCallId("c1"), "look", "{}")
SPEC = ToolSpec("look", "Looks.", {"type": "object"}, idempotent=True)
CITATION = Citation(
    "1", KnowledgeBaseId("b"), DocumentId("d"), ChunkId("c"), "n", ("h",), 1, 2, score=1
)
WRONG: Any = 5


@pytest.mark.parametrize(
    "value",
    [
        ToolResult("a"),
        ToolResult("a", error="failed", whole=Whole("a", 1, ""), usage=Usage(1, 2)),
        ToolResult("a", (CITATION,)),
        ModelReply("a", (CALL,), usage=Usage(), reasoning="b"),
        ModelRequest((ChatMessage(Role.ASSISTANT, "a", tool_calls=(CALL,)),), (SPEC,)),
        CALL,
        End("a", "REASON"),
        CallTools((CALL,)),
        AskAgain(),
        "a text",
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_as_it_says_is_taken(value: object) -> None:
    check_sound(value)


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (ToolResult(WRONG), "ToolResult.text is a int"),
        (ToolResult("a", error=WRONG), "ToolResult.error"),
        (ToolResult("a", usage=WRONG), "ToolResult.usage"),
        (ToolResult("a", whole=Whole(WRONG, 1, "")), "ToolResult.whole"),
        (ToolResult("a", (WRONG,)), "ToolResult.citations"),
        (ModelReply(WRONG), "ModelReply.text"),
        (ModelReply("a", (replace(CALL, arguments_json=WRONG),)), "ModelReply.tool_calls"),
        (ModelReply("a", reasoning=WRONG), "ModelReply.reasoning"),
        (ModelRequest((ChatMessage(Role.USER, WRONG),), ()), "ModelRequest.messages"),
        (ModelRequest(WRONG, ()), "ModelRequest.messages"),
        (replace(CALL, arguments_json=WRONG), "ToolCall.arguments_json"),
        (End(WRONG), "End.text"),
        (CallTools((WRONG,)), "CallTools.calls"),
        (AskAgain(WRONG), "AskAgain.note"),
    ],
)
def test_what_is_not_is_named(value: object, field: str) -> None:
    with pytest.raises(TypeError, match=field):
        check_sound(value)


def test_a_long_request_is_checked_in_no_time() -> None:
    messages = tuple(ChatMessage(Role.USER, "a") for _ in range(1000))
    begun = time.thread_time()
    check_sound(ModelRequest(messages, (SPEC,)))

    assert time.thread_time() - begun < 0.2
