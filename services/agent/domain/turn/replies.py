"""What models and tools said, as messages to be committed. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from services.agent.domain.chat import Ending, ModelReply, ToolResult
from services.agent.domain.endings import notice
from services.agent.domain.messages import Citation, Draft, Role, ToolCall
from services.agent.domain.run_models import RunState, Usage
from services.agent.domain.turn.citations import answer_citations
from services.common.text import Json

TAINTED: Final = "tainted"
"""In the metadata of what a model said: it had been shown what others wrote."""

_NO_OUTPUT = "(no output)"


def asking(reply: ModelReply, *, model: str, tainted: bool = False) -> Draft:
    """A reply that asks for tools.

    Args:
        reply: what the model said.
        model: the name it is registered under.
        tainted: whether it had been shown what others wrote.
    """
    metadata = _metadata(reply, model, tainted=tainted)
    return Draft(Role.ASSISTANT, reply.text, tool_calls=reply.tool_calls, metadata=metadata)


def result(call: ToolCall, given: ToolResult) -> Draft:
    """The result of a call."""
    known: Mapping[str, Json] = {
        "error": given.error,
        "full_chars": given.whole.full_chars if given.whole else None,
        "usage": _usage(given.usage) if given.usage != Usage() else None,
        "tool_calls": given.tool_calls,
    }
    return Draft(
        Role.TOOL,
        given.text or _NO_OUTPUT,
        tool_call_id=call.id,
        tool_name=call.name,
        citations=given.citations,
        metadata={key: value for key, value in known.items() if value},
        whole=given.whole,
    )


def answer(
    reply: ModelReply,
    *,
    model: str,
    retrieved: Iterable[Citation],
    summarised_through: int | None = None,
    tainted: bool = False,
) -> Draft:
    """The answer to the user, with what it rests on.

    Args:
        reply: what the model said.
        model: the name it is registered under.
        retrieved: every passage that the run's tools brought.
        summarised_through: the turn up to which the model was shown a summary, if it was.
        tainted: whether it had been shown what others wrote.
    """
    metadata = _metadata(reply, model, tainted=tainted)
    if reply.hook:
        return Draft(Role.ASSISTANT, reply.text, metadata=metadata)
    citations, basis = answer_citations(reply.text, retrieved)
    if basis is not None:
        metadata["citation_basis"] = basis
    if summarised_through is not None:
        metadata["summarised_through"] = summarised_through
    return Draft(Role.ASSISTANT, reply.text, citations=citations, metadata=metadata)


def instead_of_answer(text: str, ending: Ending) -> Draft:
    """The words that stand where the answer would, written by ChatMind and marked as such."""
    if ending.state is RunState.ERROR:
        return notice(text)
    return Draft(Role.ASSISTANT, text, metadata={"notice": ending.stop_reason.value})


def _metadata(reply: ModelReply, model: str, *, tainted: bool) -> dict[str, Json]:
    mark: dict[str, Json] = {TAINTED: True} if tainted else {}
    if reply.hook:
        return {"hook": reply.hook, **mark}
    known: Mapping[str, Json] = {
        "model": model,
        "served_model": reply.model if reply.model != model else "",
        "finish_reason": reply.finish_reason.value,
        "usage": _usage(reply.usage) if reply.usage else None,
        "reasoning": reply.reasoning,
        **mark,
    }
    return {key: value for key, value in known.items() if value}


def _usage(usage: Usage) -> Json:
    told: dict[str, Json] = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
    }
    if usage.cached_input_tokens:
        told["cached_input_tokens"] = usage.cached_input_tokens
    if usage.reasoning_tokens:
        told["reasoning_tokens"] = usage.reasoning_tokens
    if usage.cost is not None:
        told["cost"] = {"currency": usage.cost.currency, "nanos": usage.cost.nanos}
    return told
