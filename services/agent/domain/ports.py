"""What the agent service needs from outside, by what the caller needs of it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from services.agent.domain.approval_models import Question
from services.agent.domain.chat import (
    Ending,
    KnowledgeBase,
    ModelInfo,
    ModelReply,
    ModelRequest,
    Passage,
    ToolContext,
    ToolResult,
    ToolSpec,
)
from services.agent.domain.memory.models import Memory, Summary
from services.agent.domain.messages import Draft, Message, Whole
from services.agent.domain.models import KnowledgeBaseId, RunId, ToolCallId
from services.agent.domain.run_models import Offered, RunState, Usage
from services.agent.domain.tools.fetch.urls import Url
from services.agent.domain.tools.sql.tables import Rows, Table
from services.common.identity import Identity
from services.common.text import Json


class Model(Protocol):
    """A chat model."""

    @property
    def info(self) -> ModelInfo:
        """What is told of it."""

    async def complete(self, request: ModelRequest) -> ModelReply:
        """The model's whole reply; retries and timeouts are its own affair.

        Raises:
            ModelUnavailableError: its server is down, too slow or refuses for now.
            ModelRejectedError: its server refuses the request; ContextTooLongError if for size.
            EmptyAnswerError: what came back is no reply.
        """


class ModelRegistry(Protocol):
    """The models that agents can use."""

    def get(self, name: str) -> Model | None:
        """The model of that name, an empty one standing for the default; None if unknown."""

    def list(self) -> Sequence[ModelInfo]:
        """All of them, sorted by name."""


class Knowledge(Protocol):
    """The documents, seen with a user's eyes."""

    async def search(
        self,
        identity: Identity,
        base_ids: Sequence[KnowledgeBaseId],
        *,
        query: str,
        top_k: int,
        min_score: float | None = None,
    ) -> Sequence[Passage]:
        """The passages that answer a question best, best first; at least one base is named.

        Raises:
            NotFoundError: the user does not see one of the bases.
            InvalidArgumentError: the query is too long, or the bases do not go together.
            KnowledgeUnavailableError: the service is down or too slow.
        """

    async def bases(
        self, identity: Identity, base_ids: Sequence[KnowledgeBaseId]
    ) -> Mapping[KnowledgeBaseId, KnowledgeBase]:
        """Those of the named bases that the user sees.

        Raises:
            KnowledgeUnavailableError: the service is down or too slow.
        """


class Tool(Protocol):
    """Something an agent can do."""

    @property
    def spec(self) -> ToolSpec:
        """What a model is told of it."""

    async def run(self, arguments: Mapping[str, Json], context: ToolContext) -> ToolResult:
        """Do it; the arguments keep `spec.input_schema`.

        Raises:
            ToolError: it came to nothing; says whether the model is to try again.
            ServiceError: it failed in a way that the model may be told.
        """


@dataclass(frozen=True, slots=True)
class WebReply:
    """What a server of the web answers.

    Attributes:
        status: of HTTP, such as 200.
        content_type: the header of that name; may be empty.
        location: the header of that name; where a redirect leads.
        body: of a success, unpacked, from its beginning.
        whole: whether the body is all that the server sends.
    """

    status: int
    content_type: str
    location: str
    body: bytes
    whole: bool


class Web(Protocol):
    """The pages of the public internet."""

    async def get(self, url: Url, *, max_bytes: int) -> WebReply:
        """What the server answers, redirects not followed; the caller bounds the time.

        Raises:
            FailedToolError: the page cannot be had, or its host has addresses that are not public.
        """


class SqlDatabase(Protocol):
    """Another database than ChatMind's own, as far as a role may read it."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def description(self) -> str:
        """What is in it; may be empty."""

    @property
    def tables(self) -> Sequence[Table] | None:
        """What can be read; None where it has not been reached yet."""

    async def query(self, sql: str, *, run_id: RunId) -> Rows:
        """What one query brings, within the bounds of this database.

        Raises:
            RetryToolError: it is no single query, wrong, or takes too long.
            FailedToolError: it is not permitted, or the database cannot be asked.
        """


class ToolRegistry(Protocol):
    """The tools that agents can be given."""

    def get(self, name: str) -> Tool | None:
        """The tool of that name; None if unknown."""

    def list(self) -> Sequence[ToolSpec]:
        """All of them, sorted by name."""


class CutResults(Protocol):
    """What was kept of the results that were too long to be shown whole."""

    async def whole(self, run_id: RunId, step: int, place: int) -> Whole | None:
        """The result of the call at this place of a run; None where it was not cut.

        Raises:
            UnavailableError: the store is down.
        """


class RunJournal(Protocol):
    """The writes of the worker that holds a run; the transcript is the journal.

    Each write is one transaction that checks first that the run is still this worker's, and raises
    FencedError if not. A store takes drafts that fit, as `domain.drafts` makes them; whoever writes
    through `domain.journal.HintingJournal` need not see to that.
    """

    async def set_state(self, state: RunState, *, offered: Offered | None = None) -> None:
        """Tell where the run stands (not a final state), and what its model is offered, if new.

        Raises:
            FencedError: the run is no longer this worker's.
        """

    async def append_assistant(
        self, draft: Draft, *, usage: Usage, starting: Collection[int] = ()
    ) -> Message:
        """Commit what the model asks to be executed, before anything is; counts one step.

        The run is EXECUTING then, its calls PLANNED.

        Args:
            draft: an ASSISTANT message with tool calls.
            usage: what this reply cost; added to the run's.
            starting: places, from 0, of the calls that are executed next and so are STARTED.

        Raises:
            FencedError: the run is no longer this worker's.
        """

    async def start_tool_calls(self, call_ids: Sequence[ToolCallId]) -> None:
        """Note that these calls of the last assistant message are executed next; once more, maybe.

        The run is EXECUTING then. A later worker finds those without result in
        `RunContext.started_calls`; what is not idempotent must be STARTED before it is executed.

        Raises:
            FencedError: the run is no longer this worker's.
        """

    async def append_tool_results(
        self, drafts: Sequence[Draft], *, then: RunState | None = None
    ) -> Sequence[Message]:
        """Commit the one result each of some calls, as TOOL messages.

        Args:
            drafts: at least one, in the order of the calls, with none left out before them. What
                they have as a `whole` is kept beside them, for `CutResults`.
            then: where the run stands from now on, if it moves on.

        Raises:
            FencedError: the run is no longer this worker's.
        """

    async def park(self, questions: Sequence[Question], *, within: timedelta) -> None:
        """Let the run wait for a person, and give it up: nothing is written by this journal then.

        The run is AWAITING_APPROVAL, and held by nobody. It can be taken once all the questions are
        answered, or `within` later, when those without an answer are EXPIRED. One that was put
        before stays as it is.

        Args:
            questions: at least one, about calls of the last assistant message.
            within: for how long they can be answered.

        Raises:
            FencedError: the run is no longer this worker's.
        """

    async def remember(self, summary: Summary, *, revision: int, usage: Usage) -> Memory | None:
        """Replace the session's summary by one that covers more turns; see `MemoryStore.put`.

        Args:
            summary: the new one.
            revision: of the memory that it was made from.
            usage: what it cost; added to the run's, also where it is not kept.

        Returns:
            the memory as it is now; None where the summary was not kept.

        Raises:
            FencedError: the run is no longer this worker's.
        """

    async def finish(
        self,
        ending: Ending,
        closing: Sequence[Draft] = (),
        *,
        usage: Usage | None = None,
        steps: int = 0,
    ) -> Sequence[Message]:
        """Commit the end of the run with its last messages; nothing of the run follows.

        Calls still without result are answered first, as interrupted. An ERROR without a SYSTEM
        message among `closing` gets one from its `error.message`. A run that was asked to stop ends
        CANCELLED, for the reason it was asked for, and in no other way. All messages of a discarded
        run are discarded.

        Args:
            ending: final state, stop reason and error.
            closing: the answer, or a notice a person can read, or both.
            usage: what has been spent since the last write; added to the run's.
            steps: how often the model was asked since the last write; added to the run's.

        Returns:
            all messages committed here, by sequence.

        Raises:
            FencedError: the run is no longer this worker's.
        """
