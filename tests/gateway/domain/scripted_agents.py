"""An agent service that plays what a test wrote down."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import TypeAlias

from services.common.errors import ServiceError
from services.common.identity import Identity
from services.gateway.domain.messages import (
    Accepted,
    Event,
    Message,
    MessageRole,
    NewMessage,
    RunState,
    RunUpdate,
)
from services.gateway.domain.models import AgentId, RunId, SessionId
from tests.gateway.domain.fixed import NOON

Step: TypeAlias = Event | ServiceError | float
ADA = Identity("acme", "ada")
SESSION = SessionId("session")
HANG = 3600.0


def message(sequence: int) -> Message:
    """The message with this sequence."""
    return Message(
        f"m{sequence}", SESSION, RunId("run"), sequence, MessageRole.ASSISTANT, "text", NOON
    )


def run(state: RunState, run_id: str = "run") -> RunUpdate:
    """A run in a state."""
    return RunUpdate(RunId(run_id), SESSION, state)


class ScriptedAgents:
    """Plays one script for each watch; a number is a pause in seconds."""

    def __init__(self, *watches: Sequence[Step], last_sequence: int = 0) -> None:
        self.watched_after: list[int] = []
        self.open_watches = 0
        self.runs: dict[str, RunUpdate] = {}
        self.looked_up: list[str] = []
        self.opened: list[str] = []
        self.messages: list[tuple[SessionId, NewMessage]] = []
        self._watches = list(watches)
        self._last_sequence = last_sequence

    async def open_session(
        self, identity: Identity, agent_id: AgentId, *, request_id: str
    ) -> SessionId:
        """Open a session named after its request id."""
        self.opened.append(request_id)
        return SessionId(f"session of {request_id}")

    async def start_run(
        self, identity: Identity, session_id: SessionId, message: NewMessage
    ) -> Accepted:
        """Accept everything."""
        self.messages.append((session_id, message))
        return Accepted(session_id, RunId("run"), "message", 1)

    async def cancel_run(self, identity: Identity, run_id: RunId) -> RunUpdate:
        """Cancel at once."""
        return RunUpdate(run_id, SESSION, RunState.CANCELLED)

    async def get_run(self, identity: Identity, run_id: RunId) -> RunUpdate:
        """How the test says that it stands."""
        self.looked_up.append(run_id)
        return self.runs[run_id]

    async def last_sequence(self, identity: Identity, session_id: SessionId) -> int:
        """What the test prepared."""
        return self._last_sequence

    async def watch(
        self, identity: Identity, session_id: SessionId, *, after: int
    ) -> AsyncGenerator[Event, None]:
        """Play the next script, the last one for ever."""
        self.watched_after.append(after)
        script = self._watches.pop(0) if len(self._watches) > 1 else self._watches[0]
        self.open_watches += 1
        try:
            for step in script:
                if isinstance(step, ServiceError):
                    raise step
                if isinstance(step, float):
                    await asyncio.sleep(step)
                else:
                    yield step
        finally:
            self.open_watches -= 1
