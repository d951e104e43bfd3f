"""Runs that agents ask of other agents, as tools: what is asked, and what comes of it.

The run of a sub-agent has a session of its own, with the user and tenant of the run that asked. It
stands in no line: whoever holds the run that asked takes it, by the call that asked, so it needs no
place besides, and whoever goes on with that run goes on with it. It ends with it, too.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from services.agent.domain.messages import Message
from services.agent.domain.models import AgentId, RunLimits
from services.agent.domain.run_models import Run

MAX_DEPTH: Final = 3
"""How many agents may wait for one another below the user's own."""


@dataclass(frozen=True, slots=True)
class Task:
    """What an agent asks of another.

    Attributes:
        agent_id: whom it asks.
        text: what it asks; all that the other learns.
        call_key: the idempotency key of the call; asked again, the first run is meant.
        limits: what the caller has left for it.
    """

    agent_id: AgentId
    text: str
    call_key: str
    limits: RunLimits


@dataclass(frozen=True, slots=True)
class Answered:
    """What came of a task.

    Attributes:
        run: the sub-agent's, which has ended.
        answer: its last message, if that is an answer.
        tool_calls: how many it made, those of its own sub-agents included.
    """

    run: Run
    answer: Message | None
    tool_calls: int


class AskAgent(Protocol):
    """Asks another agent from within a run."""

    async def __call__(self, task: Task) -> Answered:
        """What comes of the task, once it has ended; cancelling this stops the work on it.

        Raises:
            AgentDeletedError: the user sees no such agent any more.
        """
