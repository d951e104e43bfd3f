"""The state that the stores in memory share; nothing awaits, so each method is a transaction."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from services.agent.domain.access import sees
from services.agent.domain.approval_models import Approval, ApprovalId, ApprovalState
from services.agent.domain.drafts import wire_size
from services.agent.domain.errors import unknown
from services.agent.domain.ledger import ToolCallRecord
from services.agent.domain.memory.models import Memory, Summary
from services.agent.domain.messages import Draft, Message, Whole
from services.agent.domain.models import (
    Agent,
    AgentId,
    AgentSettings,
    MessageId,
    RunId,
    Session,
    SessionId,
)
from services.agent.domain.run_models import Run, RunState, Usage
from services.agent.domain.stores import RequestKey
from services.common.clock import Clock
from services.common.errors import RequestIdReusedError
from services.common.identity import Identity
from services.common.ids import NewId
from services.common.paging import Listing

Kind: TypeAlias = Literal["create_agent", "create_session", "start_run", "resolve_approval"]


@dataclass(slots=True)
class StoredRun:
    """A run and what only the queue knows of it.

    Attributes:
        run: the run.
        epoch: counts the claims.
        crashes: how often a worker was lost while it held the run.
        lease_until: until when a worker holds it.
        place: in the queue; None while another run of the session comes first.
        settings: of its agent, as they were when it was first taken.
        calls: its tool calls.
        wholes: what is kept of results that were cut, by step and place.
        approvals: the questions about them, as they were left; one without an answer expires.
        park_time: since when it waits for a person.
        waited: for how long it has done so before.
    """

    run: Run
    epoch: int = 0
    crashes: int = 0
    lease_until: datetime | None = None
    place: int | None = None
    settings: AgentSettings | None = None
    calls: list[ToolCallRecord] = field(default_factory=list)
    wholes: dict[tuple[int, int], Whole] = field(default_factory=dict)
    approvals: dict[ApprovalId, Approval] = field(default_factory=dict)
    park_time: datetime | None = None
    waited: timedelta = timedelta()


@dataclass(slots=True)
class MemoryDatabase:
    """Everything, by id; sessions' messages in order."""

    clock: Clock
    new_id: NewId
    agents: dict[AgentId, Agent] = field(default_factory=dict)
    sessions: dict[SessionId, Session] = field(default_factory=dict)
    messages: dict[SessionId, list[Message]] = field(default_factory=dict)
    runs: dict[RunId, StoredRun] = field(default_factory=dict)
    memories: dict[SessionId, Memory] = field(default_factory=dict)
    requests: dict[tuple[str, str, Kind, str], tuple[bytes, str]] = field(default_factory=dict)

    def agent(self, identity: Identity, agent_id: AgentId) -> Agent:
        """An agent that the user sees; NotFoundError where there is none."""
        agent = self.agents.get(agent_id)
        if agent is None or not sees(identity, agent):
            raise unknown("agent", agent_id)
        return agent

    def session(self, identity: Identity, session_id: SessionId) -> Session:
        """A session of the user's; NotFoundError where there is none."""
        session = self.sessions.get(session_id)
        if session is None or (session.tenant, session.user_id) != (
            identity.tenant,
            identity.user_id,
        ):
            raise unknown("session", session_id)
        active = next((stored.run.id for stored in self.unfinished(session_id)), None)
        return replace(session, active_run_id=active)

    def open_session(
        self,
        identity: Identity,
        agent_id: AgentId,
        *,
        title: str,
        time_zone: str = "",
        parent: tuple[RunId, str] | None = None,
    ) -> Session:
        """A new session of a user's, or of a sub-agent, with the run and call that asked."""
        now = self.clock()
        session = Session(
            id=SessionId(self.new_id()),
            tenant=identity.tenant,
            user_id=identity.user_id,
            agent_id=agent_id,
            title=title,
            last_sequence=0,
            active_run_id=None,
            create_time=now,
            update_time=now,
            parent_run_id=parent and parent[0],
            parent_call_key=parent and parent[1],
            time_zone=time_zone,
        )
        self.sessions[session.id] = session
        self.messages[session.id] = []
        return session

    def run(self, identity: Identity, run_id: RunId) -> StoredRun:
        """A run of the user's; NotFoundError where there is none."""
        stored = self.runs.get(run_id)
        if stored is None or (stored.run.tenant, stored.run.user_id) != (
            identity.tenant,
            identity.user_id,
        ):
            raise unknown("run", run_id)
        return stored

    def runs_of(self, session_id: SessionId) -> list[StoredRun]:
        """A session's runs in turn order."""
        found = (stored for stored in self.runs.values() if stored.run.session_id == session_id)
        return sorted(found, key=lambda stored: stored.run.turn)

    def unfinished(self, session_id: SessionId) -> Iterator[StoredRun]:
        """A session's runs that have not ended, in turn order."""
        return (stored for stored in self.runs_of(session_id) if not stored.run.state.final)

    def subs(self, run_id: RunId) -> list[StoredRun]:
        """The runs that a run has asked of other agents, the first one first."""
        runs = (each for each in self.runs.values() if each.run.parent is not None)
        return [each for each in runs if each.run.parent and each.run.parent.run_id == run_id]

    def count_subs(self, stored: StoredRun) -> None:
        """Bring what a run's sub-agents have used up to date."""
        subs = self.subs(stored.run.id)
        used = sum((sub.run.usage for sub in subs), Usage())
        own = stored.run.usage - stored.run.sub_usage
        stored.run = replace(
            stored.run,
            usage=own + used,
            sub_usage=used,
            sub_tool_calls=sum(len(sub.calls) + sub.run.sub_tool_calls for sub in subs),
        )

    def approvals(self, stored: StoredRun) -> list[Approval]:
        """What became of the questions about a run's calls, in the order of the calls."""
        ordered = sorted(stored.approvals.values(), key=lambda each: (each.step, each.place))
        return [_now(each, self.clock()) for each in ordered]

    def earlier(self, identity: Identity, request: RequestKey, kind: Kind) -> str | None:
        """What a request made before, if it came before with the same content."""
        digest, result = self.requests.get(
            (identity.tenant, identity.user_id, kind, request.id), (request.digest, None)
        )
        if digest != request.digest:
            raise RequestIdReusedError(
                f"The request id {request.id} came before with other content."
            )
        return result

    def remember(
        self, identity: Identity, request: RequestKey | None, kind: Kind, result: str
    ) -> None:
        """Note what a request made."""
        if request is not None:
            key = (identity.tenant, identity.user_id, kind, request.id)
            self.requests[key] = (request.digest, result)

    def append(self, run: Run, drafts: Sequence[Draft]) -> list[Message]:
        """Commit drafts of a run under the session's next numbers."""
        session, moment = self.sessions[run.session_id], self.clock()
        said = self.messages[session.id]
        for draft in drafts:
            said.append(self._message(run, draft, sequence=len(said) + 1, moment=moment))
        if drafts:
            self.sessions[session.id] = replace(
                session, last_sequence=len(said), update_time=moment
            )
        return said[len(said) - len(drafts) :]

    def discard(self, session_id: SessionId, which: Callable[[Message], bool]) -> None:
        """Discard messages of a session."""
        said = self.messages[session_id]
        said[:] = [replace(each, discarded=True) if which(each) else each for each in said]

    def put_summary(
        self, session_id: SessionId, summary: Summary, *, revision: int
    ) -> Memory | None:
        """The memory with a summary that covers more turns; None where it changed meanwhile."""
        memory = self.memories.get(session_id, Memory())
        if memory.revision != revision or memory.after.turn >= summary.through_turn:
            return None
        changed = replace(memory, revision=revision + 1, summary=summary)
        self.memories[session_id] = changed
        return changed

    def forget_summary(self, session_id: SessionId, *, from_turn: int) -> None:
        """Drop the summary, if it covers a turn that is about to change, and any under way."""
        memory = self.memories.get(session_id, Memory())
        kept = memory.summary is not None and memory.summary.through_turn < from_turn
        self.memories[session_id] = replace(
            memory, revision=memory.revision + 1, summary=memory.summary if kept else None
        )

    def line_up(self, session_id: SessionId) -> None:
        """Give the first unfinished run of a session a place in the queue, and no other."""
        unfinished = list(self.unfinished(session_id))
        if any(stored.lease_until is not None for stored in unfinished):
            return
        for stored in unfinished[1:]:
            stored.place = None
        if unfinished and unfinished[0].place is None:
            unfinished[0].place = self._place_for(unfinished[0].run.tenant)

    def waiting(self) -> list[StoredRun]:
        """Runs that can be taken, in the order in which they are."""
        found = (stored for stored in self.runs.values() if stored.place is not None)
        idle = (stored for stored in found if stored.run.state is RunState.IDLE)
        return sorted(idle, key=lambda stored: (stored.place, stored.run.create_time))

    def _place_for(self, tenant: str) -> int:
        """Behind the tenant's own runs, and beside the first ones of all others."""
        waiting = self.waiting()
        first = [stored.place or 0 for stored in waiting[:1]]
        own = [(stored.place or 0) + 1 for stored in waiting if stored.run.tenant == tenant]
        return max(first + own, default=0)

    def _message(self, run: Run, draft: Draft, *, sequence: int, moment: datetime) -> Message:
        return Message(
            role=draft.role,
            text=draft.text,
            tool_calls=draft.tool_calls,
            tool_call_id=draft.tool_call_id,
            tool_name=draft.tool_name,
            citations=draft.citations,
            metadata=draft.metadata,
            id=MessageId(self.new_id()),
            session_id=run.session_id,
            run_id=run.id,
            sequence=sequence,
            step=run.step_count,
            create_time=moment,
            discarded=run.discarded,
        )


def _now(approval: Approval, moment: datetime) -> Approval:
    if approval.state is ApprovalState.PENDING and approval.expire_time <= moment:
        lapsed = ApprovalState.EXPIRED
        return replace(approval, state=lapsed, resolve_time=approval.expire_time)
    return approval


def bounded(messages: Sequence[Message], *, most: int, max_bytes: int) -> Listing[Message]:
    """The first of some messages, within both bounds but for the very first."""
    kept: list[Message] = []
    size = 0
    for message in messages[:most]:
        size += wire_size(message)
        if kept and size > max_bytes:
            break
        kept.append(message)
    return Listing(kept, len(kept) < len(messages))
