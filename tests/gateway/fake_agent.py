"""An agent service in memory: sessions with messages and runs, and watches that follow them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from chatmind.agent.v1 import (
    agent_service_pb2,
    agent_service_pb2_grpc,
    run_pb2,
    run_service_pb2,
    run_service_pb2_grpc,
    session_pb2,
)

from services.common.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    RequestIdReusedError,
    ServiceError,
    UnavailableError,
)
from services.common.identity import Identity, IdentityVerifier
from services.common.ids import new_id
from services.common.interceptors.authentication import current_identity, set_identity
from services.common.interceptors.request_id import current_request_id
from services.common.status import to_status
from services.common.tasks import task_group

Answer = TypeVar("Answer")
Watched = run_service_pb2.WatchSessionResponse
WriteWatched = Callable[[run_service_pb2.WatchSessionsResponse], Awaitable[None]]


class DrainingError(UnavailableError):
    """This replica is shutting down."""

    reason = "DRAINING"


class WentAwayError(Exception):
    """Ends a call well."""


class BusyError(FailedPreconditionError):
    """The session is busy."""

    reason = "RUN_IN_PROGRESS"


class AheadError(OutOfRangeError):
    """Past the newest message."""

    reason = "SEQUENCE_AHEAD"


@dataclass
class Session:
    """A session, its messages, and how often its runs have changed."""

    id: str
    owner: Identity
    messages: list[session_pb2.Message] = field(default_factory=list)
    runs: dict[str, run_pb2.Run] = field(default_factory=dict)
    news: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def commit(self, text: str, *, role: str = "ASSISTANT", run_id: str = "") -> int:
        """Append a message; gives its sequence."""
        message = session_pb2.Message(
            id=new_id(),
            session_id=self.id,
            run_id=run_id,
            sequence=len(self.messages) + 1,
            role=session_pb2.Message.Role.Value(f"ROLE_{role}"),
            text=text,
        )
        async with self.news:
            self.messages.append(message)
            self.news.notify_all()
        return message.sequence

    async def change(self, run_id: str, state: str) -> None:
        """Change the state of a run."""
        async with self.news:
            run = self.runs.setdefault(run_id, run_pb2.Run(id=run_id, session_id=self.id))
            run.state = run_pb2.Run.State.Value(f"STATE_{state}")
            self.news.notify_all()


class FakeAgent(
    agent_service_pb2_grpc.AgentServiceServicer, run_service_pb2_grpc.RunServiceServicer
):
    """Keeps its state over restarts of the server that it is added to."""

    def __init__(self) -> None:
        self.agents: set[str] = {new_id()}
        self.sessions: dict[str, Session] = {}
        self.draining = asyncio.Event()
        self.refusals: list[ServiceError] = []
        self.started = 0
        self.watches = 0
        self.calls_with_watches = 0
        self.verifier: IdentityVerifier | None = None
        self.seen: list[tuple[Identity, str]] = []
        self._repeats: dict[tuple[Identity, str, str], tuple[bytes, Any]] = {}

    @property
    def agent_id(self) -> str:
        """Some agent."""
        return next(iter(self.agents))

    def session(self, session_id: str) -> Session:
        """The caller's session with this id."""
        found = self.sessions.get(session_id)
        if found is None or found.owner != current_identity():
            raise _unknown("session", session_id)
        return found

    def open(self, owner: Identity) -> Session:
        """A new session."""
        session = Session(new_id(), owner)
        self.sessions[session.id] = session
        return session

    async def CreateSession(  # noqa: N802
        self, request: agent_service_pb2.CreateSessionRequest, context: Any
    ) -> agent_service_pb2.CreateSessionResponse:
        """Open a session."""
        self._see()
        if request.session.agent_id not in self.agents:
            raise _unknown("agent", request.session.agent_id)

        def make() -> agent_service_pb2.CreateSessionResponse:
            session = self.open(current_identity())
            return agent_service_pb2.CreateSessionResponse(
                session=session_pb2.Session(id=session.id, agent_id=request.session.agent_id)
            )

        return self._once("CreateSession", request, make)

    async def GetSession(  # noqa: N802
        self, request: agent_service_pb2.GetSessionRequest, context: Any
    ) -> agent_service_pb2.GetSessionResponse:
        """Tell of a session."""
        self._see()
        session = self.session(request.session_id)
        return agent_service_pb2.GetSessionResponse(
            session=session_pb2.Session(id=session.id, last_sequence=len(session.messages))
        )

    async def StartRun(  # noqa: N802
        self, request: run_service_pb2.StartRunRequest, context: Any
    ) -> run_service_pb2.StartRunResponse:
        """Store a message and a run that stays as it is."""
        self._see()
        session = self.session(request.session_id)
        if request.when_busy == run_pb2.WHEN_BUSY_ROLLBACK:
            raise InvalidArgumentError.of_field("when_busy", "ROLLBACK is not offered yet")
        if request.when_busy == run_pb2.WHEN_BUSY_REJECT and session.runs:
            raise BusyError("Busy.", metadata={"run_id": next(iter(session.runs))})
        run = run_pb2.Run(id=new_id(), session_id=session.id, state=run_pb2.Run.STATE_IDLE)
        response = run_service_pb2.StartRunResponse(run=run)
        before: run_service_pb2.StartRunResponse | None = self._repeat(
            "StartRun", request, response
        )
        if before is not None:
            return before
        self.started += 1
        session.runs[run.id] = run
        await session.commit(request.text, role="USER", run_id=run.id)
        response.message.CopyFrom(session.messages[-1])
        return response

    async def GetRun(  # noqa: N802
        self, request: run_service_pb2.GetRunRequest, context: Any
    ) -> run_service_pb2.GetRunResponse:
        """Tell of a run."""
        self._see()
        for session in self.sessions.values():
            if session.owner == current_identity() and request.run_id in session.runs:
                return run_service_pb2.GetRunResponse(run=session.runs[request.run_id])
        raise _unknown("run", request.run_id)

    async def CancelRun(  # noqa: N802
        self, request: run_service_pb2.CancelRunRequest, context: Any
    ) -> run_service_pb2.CancelRunResponse:
        """Cancel a run at once."""
        self._see()
        for session in self.sessions.values():
            if session.owner == current_identity() and request.run_id in session.runs:
                await session.change(request.run_id, "CANCELLED")
                return run_service_pb2.CancelRunResponse(run=session.runs[request.run_id])
        raise _unknown("run", request.run_id)

    async def WatchSession(  # noqa: N802
        self, request: run_service_pb2.WatchSessionRequest, context: Any
    ) -> AsyncIterator[Watched]:
        """Send what follows, with every run's state at first and after each change."""
        self._see()
        session = self.session(request.session_id)
        sent = request.after_sequence
        if sent > len(session.messages):
            raise AheadError("Ahead.", metadata={"last_sequence": str(len(session.messages))})
        states: dict[str, int] = {}
        self.watches += 1
        try:
            while True:
                for message in session.messages[sent:]:
                    sent = message.sequence
                    yield Watched(message=message, through_sequence=sent)
                for run in list(session.runs.values()):
                    if states.get(run.id) != run.state:
                        states[run.id] = run.state
                        yield Watched(run=run, through_sequence=sent)
                if await self._idle(session, sent, states):
                    yield Watched(heartbeat=run_service_pb2.Heartbeat(), through_sequence=sent)
        finally:
            self.watches -= 1

    async def WatchSessions(  # type: ignore[override]  # noqa: N802 - a coroutine that writes
        self, requests: AsyncIterator[run_service_pb2.WatchSessionsRequest], context: Any
    ) -> None:
        """The same for many watches, each with its own identity."""
        self.calls_with_watches += 1
        writing = asyncio.Lock()

        async def write(response: run_service_pb2.WatchSessionsResponse) -> None:
            async with writing:
                await context.write(response)

        with suppress(WentAwayError):
            await self._carry(requests, write)

    async def _carry(
        self,
        requests: AsyncIterator[run_service_pb2.WatchSessionsRequest],
        write: WriteWatched,
    ) -> None:
        watches: dict[int, asyncio.Task[None]] = {}
        async with task_group() as group:
            going_away = group.create_task(self._go_away(write, watches))
            async for request in requests:
                for watch in request.watches:
                    watches[watch.watch_id] = group.create_task(self._watch(watch, write))
                for watch_id in request.unwatch_ids:
                    watches[watch_id].cancel()
            going_away.cancel()
            for task in watches.values():
                task.cancel()

    async def _watch(
        self,
        watch: run_service_pb2.Watch,
        write: WriteWatched,
    ) -> None:
        assert self.verifier is not None
        event = run_service_pb2.WatchedEvent(watch_ids=[watch.watch_id])
        try:
            set_identity(self.verifier.identity(watch.identity_token))
            request = run_service_pb2.WatchSessionRequest(
                session_id=watch.session_id, after_sequence=watch.after_sequence
            )
            async for told in self.WatchSession(request, None):
                kind = str(told.WhichOneof("event"))
                event.ClearField("event")
                getattr(event, kind).CopyFrom(getattr(told, kind))
                event.through_sequence = told.through_sequence
                await write(run_service_pb2.WatchSessionsResponse(events=[event]))
        except DrainingError:
            return
        except ServiceError as error:
            event.status = to_status(error, domain="agent.chatmind").SerializeToString()
            await write(run_service_pb2.WatchSessionsResponse(events=[event]))

    async def _go_away(
        self,
        write: WriteWatched,
        watches: dict[int, asyncio.Task[None]],
    ) -> None:
        await self.draining.wait()
        for session in self.sessions.values():
            async with session.news:
                session.news.notify_all()
        await asyncio.gather(*watches.values(), return_exceptions=True)
        await write(run_service_pb2.WatchSessionsResponse(going_away=True))
        raise WentAwayError

    async def _idle(self, session: Session, sent: int, states: dict[str, int]) -> bool:
        """Wait for news; gives whether there were none."""

        def news() -> bool:
            changed = any(states.get(run.id) != run.state for run in session.runs.values())
            return len(session.messages) > sent or changed or self.draining.is_set()

        try:
            async with asyncio.timeout(0.2), session.news:
                await session.news.wait_for(news)
        except TimeoutError:
            return not self._drained()
        return self._drained()

    def _drained(self) -> bool:
        if self.draining.is_set():
            raise DrainingError("Draining.")
        return False

    def _see(self) -> None:
        self.seen.append((current_identity(), current_request_id()))
        if self.refusals:
            raise self.refusals.pop(0)

    def _once(self, method: str, request: Any, make: Callable[[], Answer]) -> Answer:
        before: Answer | None = self._repeat(method, request, None)
        if before is not None:
            return before
        response = make()
        self._repeat(method, request, response)
        return response

    def _repeat(self, method: str, request: Any, response: Any) -> Any:
        """What the same request id brought before; else remember the response."""
        if not request.request_id:
            return None
        key = (current_identity(), method, request.request_id)
        content = request.SerializeToString(deterministic=True)
        if key in self._repeats:
            known, before = self._repeats[key]
            if known != content:
                raise RequestIdReusedError("Reused.")
            return before
        if response is not None:
            self._repeats[key] = (content, response)
        return None


def _unknown(resource: str, identifier: str) -> NotFoundError:
    return NotFoundError(
        f"No {resource} {identifier}.", metadata={"resource": resource, "id": identifier}
    )
