"""Puts a question to a model together: instructions, window, tools, options. Pure."""

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
from services.agent.domain.memory.models import Summary
from services.agent.domain.memory.summary import shown_summary
from services.agent.domain.messages import Draft, Role
from services.agent.domain.models import AgentSettings, ModelOptions, WindowStrategy
from services.agent.domain.prices import Prices, priced
from services.agent.domain.run_models import Usage
from services.agent.domain.tools.read_more import READ_MORE
from services.agent.domain.turn.context import Room, window
from services.agent.domain.turn.plan import Plan
from services.agent.domain.turn.prompt import closing as with_closing
from services.agent.domain.turn.prompt import with_notes
from services.agent.domain.turn.tokens import estimate_message, estimate_tokens, estimate_tool

UNKNOWN_CONTEXT_TOKENS: Final = 32_768
"""What the window may cost where tokens alone bound it, and nobody says how many."""

_ANSWER_TOKENS: Final = 4096
_ANSWER_SHARE: Final = 4  # of a small context, a quarter is kept free for the answer


@dataclass(frozen=True, slots=True)
class Prepared:
    """A question to a model.

    Attributes:
        request: the question.
        tokens: about what it costs to read.
        room: what its messages could take.
        summarised: whether a summary is among them.
        prices: of the model.
    """

    request: ModelRequest
    tokens: int
    room: Room
    summarised: bool = False
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


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What a run learned of how much its model reads.

    Attributes:
        tokens: bounds a whole question, since its server refused one twice as long.
        scale: how many tokens the model counts where one is estimated, at least 1.
    """

    tokens: int | None = None
    scale: float = 1.0


def prepare(
    plan: Plan,
    context: RunContext,
    turn: Sequence[Draft],
    *,
    closing: bool,
    summary: Summary | None = None,
    ceiling: Ceiling | None = None,
) -> Prepared:
    """The next question of a run.

    Args:
        plan: what the run works with.
        context: holds the turns before and the agent's settings.
        turn: the running turn so far.
        closing: whether it is the last one, without tools.
        summary: stands for the turns before those.
        ceiling: what is known of the model.
    """
    settings = context.agent.settings
    tools = () if closing else tuple(_offered(plan, turn))
    fixed = estimate_tokens(plan.prompt) + sum(estimate_tool(tool) for tool in tools)
    fixed += plan.model.info.tools_tokens if tools else 0
    room = Room(
        settings.window.messages,
        window_tokens(settings, plan.model.info, fixed=fixed, ceiling=ceiling or Ceiling()),
    )
    remembered = () if summary is None else shown_summary(summary, room.tokens)
    shown = window(context.history, turn, room, remembered=remembered)
    messages = with_closing(shown.messages) if closing else shown.messages
    prompt = with_notes(plan.prompt, left_out=shown.left_out)
    system = (ChatMessage(Role.SYSTEM, prompt),) if prompt else ()
    return Prepared(
        request=ModelRequest((*system, *messages), tools, settings.options),
        tokens=fixed + sum(estimate_message(message) for message in shown.messages),
        prices=plan.model.info.prices,
        room=room,
        summarised=shown.remembered,
    )


def _offered(plan: Plan, turn: Sequence[Draft]) -> Iterator[ToolSpec]:
    """The tools that the model is told of; reading on is one as soon as something was cut."""
    was_cut = any("full_chars" in message.metadata for message in turn)
    for name, tool in plan.tools.items():
        if name != READ_MORE or was_cut:
            yield tool.spec


def window_tokens(
    settings: AgentSettings, model: ModelInfo, *, fixed: int, ceiling: Ceiling
) -> int | None:
    """What the window may cost: the agent's bound, and the model's context less all else.

    Args:
        settings: the agent's.
        model: answers.
        fixed: what is sent beside the window.
        ceiling: what is known of the model.
    """
    bounds = [] if settings.window.max_tokens is None else [settings.window.max_tokens]
    if ceiling.tokens is not None:
        bounds.append(ceiling.tokens - fixed)
    if model.context_tokens:
        context = int(model.context_tokens / ceiling.scale)
        bounds.append(context - fixed - _answer_tokens(settings.options, model))
    if not bounds and settings.window.strategy is not WindowStrategy.WINDOW:
        bounds.append(UNKNOWN_CONTEXT_TOKENS)
    return min(bounds, default=None)


def _answer_tokens(options: ModelOptions, model: ModelInfo) -> int:
    if options.max_output_tokens is not None:
        return options.max_output_tokens
    return min(_ANSWER_TOKENS, model.context_tokens // _ANSWER_SHARE)
