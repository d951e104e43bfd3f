"""A run with all that the loop needs, in memory: a journal, scripted models, plain tools."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar

from services.agent.domain.approval_models import Approval, Question
from services.agent.domain.chat import (
    Ending,
    KnowledgeBase,
    ModelInfo,
    ModelReply,
    ModelRequest,
    Passage,
    Provider,
    RunContext,
    ToolContext,
    ToolEffect,
    ToolResult,
    ToolSpec,
)
from services.agent.domain.endings import last_messages
from services.agent.domain.errors import KnowledgeUnavailableError, unknown
from services.agent.domain.hooks.registry import Hooks
from services.agent.domain.ledger import ToolCallState, outcome_of
from services.agent.domain.memory.models import Memory, Summary
from services.agent.domain.memory.store import MemoryStore
from services.agent.domain.messages import Citation, Draft, Message, Role, ToolCall, Whole
from services.agent.domain.models import (
    Agent,
    AgentId,
    AgentSettings,
    ChunkId,
    DocumentId,
    KnowledgeBaseId,
    MessageId,
    RunId,
    SessionId,
    ToolCallId,
)
from services.agent.domain.ports import Model, Tool
from services.agent.domain.run_models import Offered, Run, RunState, Spent, Usage
from services.agent.domain.tools.execute import ToolBounds
from services.agent.domain.tools.function import object_schema
from services.agent.domain.tools.registry import Tools
from services.agent.domain.tools.sources import Continuations, KnowledgeTools, RegisteredTools
from services.agent.domain.turn.loop import Loop
from services.agent.domain.turn.plan import Planner
from services.agent.store.memory.database import MemoryDatabase
from services.agent.store.memory.memories import MemoryMemoryStore
from services.common.identity import Identity
from services.common.ids import new_id
from services.common.text import Json

START = datetime(2026, 6, 1, 10, 30, tzinfo=UTC)
IDENTITY = Identity("acme", "ann")
SESSION = SessionId("s1")
USAGE = Usage(10, 5)

Answer = ModelReply | Exception
ModelT = TypeVar("ModelT", bound=Model)


def call(id_: str, name: str = "look", arguments: str = '{"what": "x"}') -> ToolCall:
    return ToolCall(ToolCallId(id_), name, arguments)


def calls(*wanted: ToolCall, text: str = "", usage: Usage = USAGE) -> ModelReply:
    return ModelReply(text, tool_calls=wanted, usage=usage)


def says(text: str, usage: Usage = USAGE) -> ModelReply:
    return ModelReply(text, usage=usage)


class WorkerLostError(Exception):
    """The worker dies here."""


class ScriptedModel:
    """Answers one reply of the script after the other; past its end, `otherwise`."""

    def __init__(
        self,
        *script: Answer | Callable[[ModelRequest], Awaitable[ModelReply]],
        otherwise: Callable[[int], Answer] | None = None,
        context_tokens: int = 0,
    ) -> None:
        self.requests: list[ModelRequest] = []
        self._script = list(script)
        self._otherwise = otherwise
        self._info = ModelInfo("m", "m-1", Provider.OPENAI, context_tokens, default=True)

    @property
    def info(self) -> ModelInfo:
        return self._info

    async def complete(self, request: ModelRequest) -> ModelReply:
        self.requests.append(request)
        number = len(self.requests)
        if number <= len(self._script):
            answer = self._script[number - 1]
        else:
            assert self._otherwise is not None, "the script is used up"
            answer = self._otherwise(number)
        if callable(answer):
            answer = await answer(request)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Models:
    """A registry of this one model."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def get(self, name: str) -> Model | None:
        return self._model if name in {"", self._model.info.name} else None

    def list(self) -> Sequence[ModelInfo]:
        return [self._model.info]


@dataclass
class PlainTool:
    """A tool that notes its calls and gives what it is told to."""

    name: str = "look"
    idempotent: bool = True
    effect: ToolEffect = ToolEffect.READ_ONLY
    trusted: bool = False
    properties: Mapping[str, Json] = field(default_factory=lambda: {"what": {"type": "string"}})
    gives: Callable[[Mapping[str, Json]], ToolResult] = lambda arguments: ToolResult("found")
    ran: list[Mapping[str, Json]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    hook: Callable[[Mapping[str, Json]], Awaitable[None]] | None = None

    @property
    def spec(self) -> ToolSpec:
        schema = object_schema(self.properties, [])
        return ToolSpec(
            self.name,
            f"The tool {self.name}.",
            schema,
            self.idempotent,
            self.effect,
            trusted=self.trusted,
        )

    async def run(self, arguments: Mapping[str, Json], context: ToolContext) -> ToolResult:
        self.ran.append(arguments)
        self.keys.append(context.call_key)
        if self.hook is not None:
            await self.hook(arguments)
        return self.gives(arguments)


@dataclass
class Shelf:
    """Knowledge bases in memory; a search gives the passages that hold the query."""

    bases_: dict[str, KnowledgeBase] = field(default_factory=dict)
    passages: list[Passage] = field(default_factory=list)
    down: bool = False
    searched: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    def add(self, id_: str, name: str, *texts: str, description: str = "") -> "Shelf":
        base_id = KnowledgeBaseId(id_)
        self.bases_[id_] = KnowledgeBase(base_id, name, description)
        for number, text in enumerate(texts, start=1):
            chunk = ChunkId(f"{id_}-{number}")
            citation = Citation(
                label="",
                knowledge_base_id=base_id,
                document_id=DocumentId(f"{id_}-d"),
                chunk_id=chunk,
                document_name=name,
                heading_path=("Part", str(number)),
                start_line=number,
                end_line=number,
                score=1 / number,
            )
            self.passages.append(Passage(text, citation))
        return self

    async def search(
        self,
        identity: Identity,
        base_ids: Sequence[KnowledgeBaseId],
        *,
        query: str,
        top_k: int,
        min_score: float | None = None,
    ) -> Sequence[Passage]:
        self._check(base_ids)
        self.searched.append((query, tuple(base_ids)))
        found = [
            passage
            for passage in self.passages
            if passage.citation.knowledge_base_id in base_ids and query in passage.text
        ]
        return found[:top_k]

    async def bases(
        self, identity: Identity, base_ids: Sequence[KnowledgeBaseId]
    ) -> Mapping[KnowledgeBaseId, KnowledgeBase]:
        self._check(())
        return {each: self.bases_[each] for each in base_ids if each in self.bases_}

    def _check(self, base_ids: Sequence[KnowledgeBaseId]) -> None:
        if self.down:
            raise KnowledgeUnavailableError("The knowledge service is unavailable.")
        for base_id in base_ids:
            if base_id not in self.bases_:
                raise unknown("knowledge_base", base_id)


class TurnJournal:
    """The journal of one run in memory; it can lose its worker at any write.

    Attributes:
        messages: the run's, the user's first.
        states: as they were told.
        parked: the questions to a person, and for how long each of them could be answered.
        approvals: what became of the questions.
        dies_at: the number of the write, from 1, that is the worker's last.
        commits_last: whether that write is committed before the worker dies.
    """

    def __init__(self, question: str = "Where is the backup?") -> None:
        self.messages: list[Message] = []
        self.states: list[RunState] = []
        self.offered: Offered | None = None
        self.calls: dict[ToolCallId, ToolCallState] = {}
        self.wholes: dict[tuple[int, int], Whole] = {}
        self.steps = 0
        self.usage = Usage()
        self.memories: MemoryStore | None = None
        self.endings: list[Ending] = []
        self.parked: list[tuple[Sequence[Question], timedelta]] = []
        self.approvals: dict[ToolCallId, Approval] = {}
        self.writes = 0
        self.dies_at = 0
        self.commits_last = True
        self._commit(Draft(Role.USER, question))

    async def set_state(self, state: RunState, *, offered: Offered | None = None) -> None:
        with self._write():
            assert not state.final
            self.states.append(state)
            self.offered = offered or self.offered

    async def append_assistant(
        self, draft: Draft, *, usage: Usage, starting: Collection[int] = ()
    ) -> Message:
        with self._write():
            assert draft.tool_calls
            self.steps += 1
            self.usage += usage
            self.states.append(RunState.EXECUTING)
            for place, asked in enumerate(draft.tool_calls):
                started = place in starting
                self.calls[asked.id] = ToolCallState.STARTED if started else ToolCallState.PLANNED
            return self._commit(draft)

    async def start_tool_calls(self, call_ids: Sequence[ToolCallId]) -> None:
        with self._write():
            self.states.append(RunState.EXECUTING)
            self.calls |= dict.fromkeys(call_ids, ToolCallState.STARTED)

    async def append_tool_results(
        self, drafts: Sequence[Draft], *, then: RunState | None = None
    ) -> Sequence[Message]:
        with self._write():
            for draft in drafts:
                assert draft.tool_call_id is not None
                self.calls[draft.tool_call_id], _ = outcome_of(draft)
                if draft.whole is not None:
                    asked = next(m for m in reversed(self.messages) if m.tool_calls).tool_calls
                    place = [each.id for each in asked].index(draft.tool_call_id)
                    self.wholes[self.steps, place] = draft.whole
            self.states += [] if then is None else [then]
            return [self._commit(draft) for draft in drafts]

    async def whole(self, run_id: RunId, step: int, place: int) -> Whole | None:
        assert run_id == "r1"
        return self.wholes.get((step, place))

    async def park(self, questions: Sequence[Question], *, within: timedelta) -> None:
        with self._write():
            self.states.append(RunState.AWAITING_APPROVAL)
            self.parked.append((questions, within))

    async def remember(self, summary: Summary, *, revision: int, usage: Usage) -> Memory | None:
        with self._write():
            self.usage += usage
            if self.memories is None:
                return None
            return await self.memories.put(IDENTITY, SESSION, summary, revision=revision)

    async def finish(
        self,
        ending: Ending,
        closing: Sequence[Draft] = (),
        *,
        usage: Usage | None = None,
        steps: int = 0,
    ) -> Sequence[Message]:
        with self._write():
            self.endings.append(ending)
            self.steps += steps
            self.usage += usage or Usage()
            open_calls = [call for call in self._asked() if call.id in self._open()]
            return [self._commit(each) for each in last_messages(open_calls, ending, closing)]

    @property
    def started(self) -> frozenset[ToolCallId]:
        """Calls that are begun and have no result."""
        return frozenset(id_ for id_, state in self.calls.items() if state is ToolCallState.STARTED)

    def _open(self) -> set[ToolCallId]:
        unfinished = {ToolCallState.PLANNED, ToolCallState.STARTED}
        return {id_ for id_, state in self.calls.items() if state in unfinished}

    def _asked(self) -> list[ToolCall]:
        return [asked for message in self.messages for asked in message.tool_calls]

    def _write(self) -> "_Write":
        assert not self.endings, "a write after the end"
        self.writes += 1
        return _Write(self)

    def _commit(self, draft: Draft) -> Message:
        sequence = len(self.messages) + 1
        message = Message(
            role=draft.role,
            text=draft.text,
            tool_calls=draft.tool_calls,
            tool_call_id=draft.tool_call_id,
            tool_name=draft.tool_name,
            citations=draft.citations,
            metadata=draft.metadata,
            id=MessageId(f"m{sequence}"),
            session_id=SESSION,
            run_id=RunId("r1"),
            sequence=sequence,
            step=self.steps,
            create_time=START,
        )
        self.messages.append(message)
        return message

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.messages]

    @property
    def last(self) -> Message:
        return self.messages[-1]


class _Write:
    """One write: lost, or the last, where the journal says so."""

    def __init__(self, journal: TurnJournal) -> None:
        self._journal = journal
        self._dies = journal.writes == journal.dies_at

    def __enter__(self) -> None:
        if self._dies and not self._journal.commits_last:
            raise WorkerLostError

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._dies and kind is None:
            raise WorkerLostError


def no_memories() -> MemoryStore:
    """A store that knows no session."""
    return MemoryMemoryStore(MemoryDatabase(clock=lambda: START, new_id=new_id))


@dataclass
class Scene(Generic[ModelT]):
    """A run, ready to be worked on.

    Attributes:
        model: answers.
        tools: registered; the agent may use all of them.
        settings: the agent's; its tools are filled in.
        shelf: the knowledge.
        journal: the run's.
        before: what earlier attempts at it used up.
        hooks: registered; the agent has those that its settings name.
        now: moved by hand.
        clock_error: how wrong the worker's clock is.
    """

    model: ModelT
    tools: Sequence[Tool] = ()
    settings: AgentSettings = field(default_factory=lambda: AgentSettings("Helper"))
    shelf: Shelf = field(default_factory=Shelf)
    journal: TurnJournal = field(default_factory=TurnJournal)
    history: Sequence[Message] = ()
    bounds: ToolBounds = field(default_factory=ToolBounds)
    memories: MemoryStore = field(default_factory=no_memories)
    before: Spent = field(default_factory=Spent)
    hooks: Hooks = field(default_factory=Hooks)
    now: datetime = START
    clock_error: timedelta = timedelta()

    async def work(self) -> Ending:
        """Work on the run from wherever it stands, to its end."""
        ending = await self.work_on()
        assert ending is not None
        return ending

    async def work_on(self) -> Ending | None:
        """Work on the run, to its end or until a person is to be asked."""
        planner = Planner(
            Models(self.model),
            [
                RegisteredTools(Tools(self.tools)),
                KnowledgeTools(self.shelf),
                Continuations(self.journal, self.bounds.result_chars),
            ],
            self.hooks,
        )
        return await Loop(planner, self._clock, self.memories, self.bounds).run(
            self.context(), self.journal
        )

    def context(self) -> RunContext:
        """What the run begins, or goes on, with."""
        journal = self.journal
        names = tuple(tool.spec.name for tool in self.tools)
        return RunContext(
            run=replace(_run(journal), before=self.before),
            agent=_agent(replace(self.settings, tools=self.settings.tools or names)),
            identity=IDENTITY,
            history=self.history,
            turn=tuple(journal.messages),
            started_calls=journal.started,
            elapsed=self.now - START,
            approvals=journal.approvals,
        )

    def pass_time(self, by: timedelta) -> None:
        """Let time go by."""
        self.now += by

    def _clock(self) -> datetime:
        return self.now + self.clock_error


def _agent(settings: AgentSettings) -> Agent:
    return Agent(AgentId("a1"), "acme", "ann", settings, START, START)


def _run(journal: TurnJournal) -> Run:
    return Run(
        id=RunId("r1"),
        session_id=SESSION,
        tenant="acme",
        user_id="ann",
        agent_id=AgentId("a1"),
        message_id=journal.messages[0].id,
        turn=1,
        state=RunState.IDLE,
        create_time=START,
        step_count=journal.steps,
        usage=journal.usage,
        start_time=START,
    )
