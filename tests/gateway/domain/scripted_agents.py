"""An agent service that accepts everything, and watches that tell what a test says."""

import asyncio

from services.common.identity import Identity
from services.gateway.domain.messages import (
    Accepted,
    Message,
    NewMessage,
    RunState,
    RunUpdate,
    Told,
)
from services.gateway.domain.models import AgentId, RunId, SessionId
from services.gateway.domain.ports import Place, Watched

ADA = Identity("acme", "ada")
SESSION = SessionId("session")
HANG = 3600.0


def message(sequence: int, size: int = 4) -> Message:
    """The message with this sequence, of so many bytes."""
    return Message(sequence, b"text"[:size].ljust(size))


def run(state: RunState, run_id: str = "run") -> RunUpdate:
    """A run in a state."""
    return RunUpdate(RunId(run_id), SESSION, state)


class ScriptedAgents:
    """Accepts everything."""

    def __init__(self, *, last_sequence: int = 0) -> None:
        self.opened: list[str] = []
        self.messages: list[tuple[SessionId, NewMessage]] = []
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

    async def last_sequence(self, identity: Identity, session_id: SessionId) -> int:
        """What the test prepared."""
        return self._last_sequence


class ScriptedWatches:
    """Satisfies `Watches`; those who watch are told by `tell`.

    Attributes:
        began: where each watch began, in order.
        open: who is watching now.
    """

    def __init__(self) -> None:
        self.began: list[Place] = []
        self.open: list[Watched] = []
        self._begun = asyncio.Event()

    def begin(self, watched: Watched) -> None:
        """Note where it begins."""
        self.began.append(watched.resume())
        self.open.append(watched)
        self._begun.set()

    def end(self, watched: Watched) -> None:
        """Forget it."""
        if watched in self.open:
            self.open.remove(watched)
        if not self.open:
            self._begun.clear()

    async def begun(self) -> Watched:
        """The one who watches, once there is somebody."""
        async with asyncio.timeout(5):
            await self._begun.wait()
        return self.open[-1]

    async def tell(self, *events: Told) -> None:
        """Tell the one who watches, who is given up at the first event it has no room for."""
        watched = await self.begun()
        for event in events:
            if not watched.tell(event):
                self.end(watched)
                return
