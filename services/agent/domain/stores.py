"""What the api needs of the stores of agents, sessions, messages and runs.

The owner condition is part of every statement: an id of somebody else's reads like an unknown one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from services.agent.domain.approval_models import Answer, Approval, ApprovalId, ApprovalState
from services.agent.domain.ledger import ToolCallRecord
from services.agent.domain.messages import Message
from services.agent.domain.models import Agent, AgentId, AgentSettings, RunId, Session, SessionId
from services.agent.domain.run_models import Run, WhenBusy
from services.common.identity import Identity
from services.common.paging import Listing, Page


@dataclass(frozen=True, slots=True)
class RequestKey:
    """What makes a call safe to repeat: it has its effect once, then gives the same result.

    Attributes:
        id: the caller's id for the request, unique per user and kind of request.
        digest: of the request's content; the same id with another content is refused.
    """

    id: str
    digest: bytes


class AgentStore(Protocol):
    """Keeps agents. Whoever does not see one is told NotFoundError, as if it were not there."""

    async def create(
        self, identity: Identity, settings: AgentSettings, *, request: RequestKey | None = None
    ) -> Agent:
        """A new agent of this user's; the first one where the request came before.

        Raises:
            RequestIdReusedError: the request came before with other content.
        """

    async def created(self, identity: Identity, request: RequestKey) -> Agent | None:
        """The agent that this request created; None where it did not come before.

        Raises:
            RequestIdReusedError: it came before with other content.
        """

    async def get(self, identity: Identity, agent_id: AgentId) -> Agent:
        """An agent that the user sees.

        Raises:
            NotFoundError: the user sees no such agent.
        """

    async def list(
        self, identity: Identity, page: Page, *, display_name: str = ""
    ) -> Sequence[Agent]:
        """Agents that the user sees, oldest first.

        Args:
            identity: the user.
            page: its sort key is the id.
            display_name: keeps agents of exactly this name; empty keeps all.
        """

    async def named(
        self, identity: Identity, agent_ids: Sequence[AgentId]
    ) -> Mapping[AgentId, Agent]:
        """Those of the named agents that the user sees; some, never many."""

    async def callees(
        self, identity: Identity, agent_ids: Sequence[AgentId]
    ) -> Mapping[AgentId, tuple[AgentId, ...]]:
        """Whom each of some agents of the tenant may call, whoever sees it."""

    async def update(
        self,
        identity: Identity,
        agent_id: AgentId,
        change: Callable[[AgentSettings], AgentSettings],
    ) -> Agent:
        """The agent with its settings changed, read and written in one transaction.

        Raises:
            NotFoundError: the user sees no such agent.
            PermissionDeniedError: the user sees it but may not change it.
        """

    async def delete(self, identity: Identity, agent_id: AgentId) -> datetime:
        """Delete an agent; gives when.

        Raises:
            NotFoundError: the user sees no such agent.
            PermissionDeniedError: the user sees it but may not delete it.
        """


@dataclass(frozen=True, slots=True)
class Deleted:
    """What was deleted with a session.

    Attributes:
        messages: how many messages.
        runs: how many runs.
        time: when.
    """

    messages: int
    runs: int
    time: datetime


@dataclass(frozen=True, slots=True)
class Which:
    """Which of a user's sessions are listed.

    Attributes:
        agent_id: those with this agent; None for all.
        parent_run_id: those of sub-agents that this run asked; None for all.
        sub_sessions: those of sub-agents too; of no account where a run is named.
    """

    agent_id: AgentId | None = None
    parent_run_id: RunId | None = None
    sub_sessions: bool = False


OWN_SESSIONS: Final = Which()
"""Those that the user opened."""


class SessionStore(Protocol):
    """Keeps sessions; each is seen by its user alone, all others are told NotFoundError."""

    async def create(
        self,
        identity: Identity,
        agent_id: AgentId,
        *,
        title: str = "",
        time_zone: str = "",
        request: RequestKey | None = None,
    ) -> Session:
        """A new session of this user's; the first one where the request came before.

        Raises:
            NotFoundError: the user sees no such agent.
            RequestIdReusedError: the request came before with other content.
        """

    async def get(self, identity: Identity, session_id: SessionId) -> Session:
        """A session of the user's.

        Raises:
            NotFoundError: the user has no such session.
        """

    async def list(
        self, identity: Identity, page: Page, which: Which = OWN_SESSIONS
    ) -> Sequence[Session]:
        """The user's sessions, newest first; the sort key of the page is the id."""

    async def update(
        self,
        identity: Identity,
        session_id: SessionId,
        *,
        title: str | None = None,
        time_zone: str | None = None,
    ) -> Session:
        """The session with what is given changed.

        Raises:
            NotFoundError: the user has no such session.
        """

    async def delete(self, identity: Identity, session_id: SessionId) -> Deleted:
        """Delete a session with its messages and runs, and those of its sub-agents, all at once.

        Raises:
            NotFoundError: the user has no such session.
            SubSessionError: it is a sub-agent's; it goes with the session of the run that asked.
        """


class MessageStore(Protocol):
    """Reads what was said; each session is seen by its user alone."""

    async def after(
        self, identity: Identity, session_id: SessionId, sequence: int, *, most: int, max_bytes: int
    ) -> Listing[Message]:
        """Messages after a sequence, in order; empty where the user has no such session.

        Args:
            identity: the user.
            session_id: the session.
            sequence: 0 for the beginning.
            most: how many at most.
            max_bytes: stop before they take more on the wire; the first is given in any case.
        """

    async def before(
        self,
        identity: Identity,
        session_id: SessionId,
        sequence: int | None,
        *,
        most: int,
        max_bytes: int,
    ) -> Listing[Message]:
        """Messages before a sequence, newest first; otherwise as `after`.

        Args:
            identity: the user.
            session_id: the session.
            sequence: None for the end.
            most: how many at most.
            max_bytes: stop before they take more on the wire; the first is given in any case.
        """


class RunStore(Protocol):
    """Accepts and shows runs; each is seen by its user alone, all others get NotFoundError."""

    async def start(
        self,
        identity: Identity,
        session_id: SessionId,
        text: str,
        *,
        when_busy: WhenBusy = WhenBusy.ENQUEUE,
        request: RequestKey | None = None,
    ) -> tuple[Run, Message]:
        """Commit a user message and the run that will answer it; what came first if repeated.

        With INTERRUPT and ROLLBACK, those runs of the session that have not ended do so first: at
        once where no worker holds them, else by their workers, which `hints.STOPS` tells. The
        session's title is taken from its first message where it has none.

        Raises:
            NotFoundError: the user has no such session.
            RequestIdReusedError: the request came before with other content.
            RunInProgressError: with REJECT, a run of the session has not ended.
            AgentDeletedError: the session's agent is gone.
            SubSessionError: the session is a sub-agent's.
            QueueFullError: too many runs of the session, or of the tenant, have not ended.
        """

    async def get(self, identity: Identity, run_id: RunId) -> Run:
        """A run of the user's.

        Raises:
            NotFoundError: the user has no such run.
        """

    async def list(self, identity: Identity, session_id: SessionId, page: Page) -> Sequence[Run]:
        """A session's runs, newest first; the sort key of the page is the turn."""

    async def cancel(self, identity: Identity, run_id: RunId) -> Run:
        """Ask for a run to be stopped: at once where no worker holds it, else by its worker.

        Raises:
            NotFoundError: the user has no such run.
        """

    async def retry(self, identity: Identity, run_id: RunId) -> Run:
        """Put a run that ended in ERROR back in line; one that has not ended stays as it is.

        It goes on behind what it has committed, in a new attempt, with its agent as it is then. The
        SYSTEM message that told of the failure is discarded. Admins of the tenant may do this too.

        Raises:
            NotFoundError: no such run is the user's, or the tenant's where the user is an admin.
            RunNotFailedError: it ended otherwise.
            SubSessionError: it is a sub-agent's; the run that asked is retried.
            AgentDeletedError: its agent is gone.
            QueueFullError: too many runs of its session, or of its tenant, are unfinished.
        """

    async def tool_calls(
        self, identity: Identity, run_id: RunId, page: Page
    ) -> Sequence[ToolCallRecord]:
        """A run's tool calls, the first one first; the sort key of the page is the position."""


class ApprovalStore(Protocol):
    """Keeps approvals; each is seen by the user of its run alone."""

    async def list(
        self,
        identity: Identity,
        page: Page,
        *,
        session_id: SessionId | None = None,
        run_id: RunId | None = None,
        state: ApprovalState | None = None,
    ) -> Sequence[Approval]:
        """Those of a session or of a run, in the order of the calls.

        Args:
            identity: the user.
            page: its sort key is the position.
            session_id: the session; None where a run is named.
            run_id: the run.
            state: keeps those that stand so; None keeps all.
        """

    async def resolve(
        self,
        identity: Identity,
        approval_id: ApprovalId,
        answer: Answer,
        *,
        request: RequestKey | None = None,
    ) -> tuple[Approval, Run]:
        """Answer a question; with the last answer its run waits for a worker again.

        The same request is answered again by how things stand.

        Raises:
            NotFoundError: the user has no such approval.
            RequestIdReusedError: the request came before with other content.
            ApprovalResolvedError: it was answered before, or cancelled with its run.
            ApprovalExpiredError: it has lapsed.
            ApprovalMismatchError: the answer is to another question.
        """
