"""The tools that ask other agents: one for each that an agent may call.

The other agent is told the task and nothing else; who it acts for comes from the run alone. Its
answer comes back with the passages that it rests on, under labels of the run that asked.
"""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from services.agent.domain.chat import ToolContext, ToolEffect, ToolResult, ToolSpec
from services.agent.domain.messages import Message
from services.agent.domain.models import Agent, AgentId
from services.agent.domain.run_models import RunState, StopReason
from services.agent.domain.sub_runs import Answered, Task
from services.agent.domain.tools.errors import FailedToolError
from services.agent.domain.tools.function import object_schema
from services.agent.domain.turn.citations import ASK_PREFIX, carried_over, header
from services.common.text import Json

MAX_TASK_CHARS: Final = 32_000

_MOST_SLUG_CHARS: Final = 40
_MOST_DESCRIPTION_CHARS: Final = 1000
_SUFFIXES: Final = (0, 6, 12, 16)
_NOT_SLUG = re.compile(r"[^a-z0-9]+")
_TASK: Mapping[str, Json] = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_TASK_CHARS,
    "description": "what it is to do or find out, with all that it needs to know for that",
}


class AskAgentTool:
    """Asks one other agent."""

    def __init__(self, name: str, callee: Agent) -> None:
        """Makes the tool.

        Args:
            name: what it is called; see `tool_names`.
            callee: the other agent, as the run's user sees it.
        """
        self._callee = callee
        self._spec = ToolSpec(
            name=name,
            description=_description(callee),
            input_schema=object_schema({"task": _TASK}, ["task"]),
            # Asked again, the other agent goes on with the same run.
            idempotent=True,
            # What it does to the world it does by calls of its own, which are judged one by one.
            effect=ToolEffect.READ_ONLY,
            asks_agent=True,
        )

    @property
    def spec(self) -> ToolSpec:
        """What a model is told of it."""
        return self._spec

    async def run(self, arguments: Mapping[str, Json], context: ToolContext) -> ToolResult:
        """Ask, and wait for the answer.

        Raises:
            AgentDeletedError: the other agent is gone.
            FailedToolError: no agent can be asked here.
        """
        if context.ask is None:
            raise FailedToolError("other agents cannot be asked here")
        task = Task(self._callee.id, str(arguments["task"]), context.call_key, context.left)
        return _result(self._callee, await context.ask(task), context.next_label)


def tool_names(agents: Sequence[Agent]) -> dict[AgentId, str]:
    """A valid name for each agent's tool, the same whatever the order; no two are alike.

    They come from display names; where those lead to one name, a hash of the id tells them apart.
    """
    lengths = dict.fromkeys((agent.id for agent in agents), 0)
    while True:
        names = {agent.id: _name(agent, _SUFFIXES[lengths[agent.id]]) for agent in agents}
        count = Counter(names.values())
        alike = [each for each, name in names.items() if count[name] > 1]
        if not alike:
            return names
        for agent_id in alike:
            lengths[agent_id] += 1


def _name(agent: Agent, suffix: int) -> str:
    text = unicodedata.normalize("NFKD", agent.settings.display_name)
    slug = _NOT_SLUG.sub("_", text.encode("ascii", "ignore").decode().lower())
    slug = slug[:_MOST_SLUG_CHARS].strip("_") or "agent"
    told_apart = hashlib.sha256(agent.id.encode()).hexdigest()[:suffix]
    return f"{ASK_PREFIX}{slug}{'_' if suffix else ''}{told_apart}"


def _description(callee: Agent) -> str:
    settings = callee.settings
    name = " ".join(settings.display_name.split())
    about = " ".join(settings.description.split())[:_MOST_DESCRIPTION_CHARS].rstrip(". ")
    return (
        f"Asks another agent, {name!r}, and gives its answer. "
        f"{about or 'It is for what its name says'}. "
        "Use it for a part of the work that falls to that agent. It knows nothing of this "
        "conversation, so put everything that it needs into the task. Goes in: the task, in whole "
        "sentences. Comes out: its answer. "
        'Example: {"task": "Find out how long backups are kept, and say where it is written."}.'
    )


def _result(callee: Agent, answered: Answered, first_label: int) -> ToolResult:
    run = answered.run
    answer = answered.answer if run.state is RunState.FINISHED else None
    if answer is None or "notice" in answer.metadata:
        return ToolResult(
            _no_answer(callee, answered),
            error=_word(run.stop_reason),
            usage=run.usage,
            tool_calls=answered.tool_calls,
        )
    text, citations = carried_over(answer.text, answer.citations, first_label)
    sources = "\n".join(header(citation) for citation in citations)
    early = run.stop_reason is not StopReason.END_TURN
    return ToolResult(
        "\n\n".join(part for part in (text, sources, _early(answered) if early else "") if part),
        citations=citations,
        source=f"agent {callee.settings.display_name!r}",
        usage=run.usage,
        tool_calls=answered.tool_calls,
    )


def _no_answer(callee: Agent, answered: Answered) -> str:
    run = answered.run
    why = run.error.message if run.error else _text(answered.answer)
    said = f": {why}" if why else "."
    name = callee.settings.display_name
    return f"Error: the agent {name!r} gave no answer ({_word(run.stop_reason)}){said}"


def _early(answered: Answered) -> str:
    return f"[It stopped before it was done: {_word(answered.run.stop_reason)}.]"


def _text(message: Message | None) -> str:
    return "" if message is None else message.text


def _word(reason: StopReason | None) -> str:
    return "stopped" if reason is None else reason.value
