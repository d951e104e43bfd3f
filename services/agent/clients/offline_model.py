"""The model for when there is none: it quotes what the agent's documents say, and says so.

It asks the knowledge bases the user's own question and shows the passages that match best, with
their numbers. It writes no prose of its own.
"""

import json
import re
from collections.abc import Sequence
from itertools import takewhile
from typing import Final

from services.agent.domain.chat import (
    ChatMessage,
    FinishReason,
    ModelInfo,
    ModelReply,
    ModelRequest,
    Passage,
    Provider,
)
from services.agent.domain.messages import Role, ToolCall
from services.agent.domain.models import ToolCallId
from services.agent.domain.run_models import Usage
from services.agent.domain.tools.query_knowledge import MAX_QUERY_CHARS, QUERY_KNOWLEDGE
from services.agent.domain.turn.citations import passages_in, place

OFFLINE_MODEL: Final = "offline"

_MOST_PASSAGES: Final = 3
_MOST_CHARS: Final = 1200
_CHINESE = re.compile("[\u3400-\u9fff\uf900-\ufaff]")

_ENGLISH: Final = {
    "found": "No chat model is configured for this agent. This is what the documents say, "
    "word for word:",
    "nothing": "No chat model is configured for this agent, and nothing in the documents matches.",
    "failed": "No chat model is configured for this agent, and the documents cannot be searched:",
    "no_bases": "No chat model is configured for this agent, so it can only quote documents, "
    "and it has no knowledge base to quote from.",
}
_IN_CHINESE: Final = {
    "found": "该智能体尚未配置聊天模型，以下是文档中最相关的原文：",
    "nothing": "该智能体尚未配置聊天模型，文档中也没有找到相关内容。",
    "failed": "该智能体尚未配置聊天模型，并且暂时无法检索文档：",
    "no_bases": "该智能体尚未配置聊天模型，只能引用文档原文，而它没有可引用的知识库。",
}


class OfflineModel:
    """The built-in model; satisfies `ports.Model` and reaches no network."""

    def __init__(self, *, default: bool) -> None:
        self._info = ModelInfo(OFFLINE_MODEL, OFFLINE_MODEL, Provider.OFFLINE, default=default)

    @property
    def info(self) -> ModelInfo:
        """What is told of it."""
        return self._info

    async def complete(self, request: ModelRequest) -> ModelReply:
        """A search for the question, and after that the quotations."""
        turn = _running_turn(request.messages)
        question = turn[0].text
        results = [message for message in turn if message.tool_name == QUERY_KNOWLEDGE]
        if not results and any(tool.name == QUERY_KNOWLEDGE for tool in request.tools):
            return _search(question)
        return ModelReply(
            _answer(results, _IN_CHINESE if _CHINESE.search(question) else _ENGLISH),
            usage=Usage(),
            model=OFFLINE_MODEL,
        )


def _running_turn(messages: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    after = list(takewhile(lambda message: message.role is not Role.USER, reversed(messages)))
    return messages[len(messages) - len(after) - 1 :]


def _search(question: str) -> ModelReply:
    query = " ".join(question.split())[:MAX_QUERY_CHARS] or "?"
    arguments = json.dumps({"query": query}, ensure_ascii=False)
    return ModelReply(
        "",
        tool_calls=(ToolCall(ToolCallId("search"), QUERY_KNOWLEDGE, arguments),),
        finish_reason=FinishReason.TOOL_CALLS,
        usage=Usage(),
        model=OFFLINE_MODEL,
    )


def _answer(results: Sequence[ChatMessage], words: dict[str, str]) -> str:
    if not results:
        return words["no_bases"]
    passages = [
        passage for result in results for passage in passages_in(result.text, result.citations)
    ]
    if passages:
        quotations = [_quotation(passage) for passage in passages[:_MOST_PASSAGES]]
        return "\n\n".join([words["found"], *quotations])
    failure = results[-1].text
    if failure.startswith("Error:"):
        return f"{words['failed']} {failure.removeprefix('Error:').strip()}"
    return words["nothing"]


def _quotation(passage: Passage) -> str:
    text = passage.text
    if len(text) > _MOST_CHARS:
        text = f"{text[:_MOST_CHARS]} […]"
    quoted = "\n".join(f"> {line}".rstrip() for line in text.split("\n"))
    citation = passage.citation
    return f"{quoted}\n>\n> — {place(citation)} [{citation.label}]"
