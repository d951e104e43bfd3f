"""Puts a question to a model together: instructions, window, tools, options. Pure."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from services.agent.domain.chat import (
    ChatMessage,
    ModelInfo,
    ModelReply,
    ModelRequest,
    RunContext,
    ToolSpec,
)
from services.agent.domain.messages import Draft, Role
from services.agent.domain.models import AgentSettings, ModelOptions
from services.agent.domain.prices import Prices, priced
from services.agent.domain.run_models import Usage
from services.agent.domain.tools.read_more import READ_MORE
from services.agent.domain.turn.context import estimate_message, estimate_tokens, window
from services.agent.domain.turn.plan import Plan
from services.agent.domain.turn.prompt import closing as with_closing
from services.agent.domain.turn.prompt import with_notes

_ANSWER_TOKENS: Final = 4096
_ANSWER_SHARE: Final = 4  # of a small context, a quarter is kept free for the answer


@dataclass(frozen=True, slots=True)
class Prepared:
    """A question to a model.

    Attributes:
        request: the question.
        tokens: about what it costs to read.
        prices: of the model.
    """

    request: ModelRequest
    tokens: int
    prices: Prices | None = None

    def bounded(self, output_tokens: int | None) -> ModelRequest:
        """The question with its answer bounded by `output_tokens` too, where that is given."""
        if output_tokens is None:
            return self.request
        asked = self.request.options.max_output_tokens
        bound = output_tokens if asked is None else min(asked, output_tokens)
        options = replace(self.request.options, max_output_tokens=bound)
        return replace(self.request, options=options)

    def usage(self, reply: ModelReply) -> Usage:
        """What the question and its answer cost; estimated where the server does not say."""
        said = ChatMessage(
            Role.ASSISTANT, reply.text, tool_calls=reply.tool_calls, reasoning=reply.reasoning
        )
        return reply.usage or priced(Usage(self.tokens, estimate_message(said)), self.prices)


def prepare(plan: Plan, context: RunContext, turn: Sequence[Draft], *, closing: bool) -> Prepared:
    """The next question of a run.

    Args:
        plan: what the run works with.
        context: holds the turns before and the agent's settings.
        turn: the running turn so far.
        closing: whether it is the last one, without tools.
    """
    settings = context.agent.settings
    tools = () if closing else tuple(_offered(plan, turn))
    fixed = estimate_tokens(plan.prompt) + sum(_tool_tokens(tool) for tool in tools)
    fixed += plan.model.info.tools_tokens if tools else 0
    shown = window(
        context.history,
        turn,
        max_messages=settings.window.messages,
        max_tokens=_window_tokens(settings, plan.model.info, fixed),
    )
    messages = with_closing(shown.messages) if closing else shown.messages
    prompt = with_notes(plan.prompt, left_out=shown.left_out)
    system = (ChatMessage(Role.SYSTEM, prompt),) if prompt else ()
    return Prepared(
        request=ModelRequest((*system, *messages), tools, settings.options),
        tokens=fixed + sum(estimate_message(message) for message in shown.messages),
        prices=plan.model.info.prices,
    )


def _offered(plan: Plan, turn: Sequence[Draft]) -> Iterator[ToolSpec]:
    """The tools that the model is told of; reading on is one as soon as something was cut."""
    was_cut = any("full_chars" in message.metadata for message in turn)
    for name, tool in plan.tools.items():
        if name != READ_MORE or was_cut:
            yield tool.spec


def _window_tokens(settings: AgentSettings, model: ModelInfo, fixed: int) -> int | None:
    """What the window may cost: the agent's bound, and the model's context less all else."""
    bounds = [] if settings.window.max_tokens is None else [settings.window.max_tokens]
    if model.context_tokens:
        bounds.append(model.context_tokens - fixed - _answer_tokens(settings.options, model))
    return min(bounds, default=None)


def _answer_tokens(options: ModelOptions, model: ModelInfo) -> int:
    if options.max_output_tokens is not None:
        return options.max_output_tokens
    return min(_ANSWER_TOKENS, model.context_tokens // _ANSWER_SHARE)


def _tool_tokens(tool: ToolSpec) -> int:
    schema = json.dumps(tool.input_schema, ensure_ascii=False)
    return estimate_tokens(tool.name) + estimate_tokens(tool.description) + estimate_tokens(schema)
