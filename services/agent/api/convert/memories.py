"""Chat memory on its way to the wire."""

from chatmind.agent.v1 import agent_service_pb2, chat_memory_pb2

from services.agent.api.convert.sessions import from_message
from services.agent.domain.memory.memories import ShownMemory
from services.agent.domain.memory.models import Compacted, Summary
from services.agent.domain.turn.tokens import estimate_tokens


def from_shown(value: ShownMemory) -> chat_memory_pb2.ChatMemory:
    """What a model would be shown, for the wire."""
    return chat_memory_pb2.ChatMemory(
        summary=_from_summary(value.memory.summary),
        messages=map(from_message, value.messages),
        tokens=value.tokens,
        cleared_through_sequence=value.memory.cleared_turn,
    )


def from_compacted(
    summary: Summary | None, done: Compacted
) -> agent_service_pb2.CompactSessionResponse:
    """What was summarised, for the wire."""
    return agent_service_pb2.CompactSessionResponse(
        summary=_from_summary(summary),
        messages=done.messages,
        tokens_before=done.tokens_before,
        tokens_after=estimate_tokens(summary.text) if summary and done.messages else 0,
        input_tokens=done.usage.input_tokens,
        output_tokens=done.usage.output_tokens,
    )


def _from_summary(summary: Summary | None) -> chat_memory_pb2.ChatSummary | None:
    if summary is None:
        return None
    return chat_memory_pb2.ChatSummary(
        text=summary.text,
        first_question=summary.question,
        through_sequence=summary.through_turn,
        messages=summary.messages,
        model=summary.model,
    )
