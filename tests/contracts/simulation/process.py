"""A worker process of the simulation: a real `Worker` and `Loop` on a loop of their own.

It can be frozen, killed, and caught at any point before or after one of its database operations.
Its model and its tools answer when they are told to.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from services.agent.domain.approval_models import Question
from services.agent.domain.chat import (
    Ending,
    ModelInfo,
    ModelReply,
    ModelRequest,
    Provider,
    RunContext,
    ToolContext,
    ToolEffect,
    ToolResult,
    ToolSpec,
)
from services.agent.domain.errors import FencedError
from services.agent.domain.memory.models import Memory, Place, Said, Summary
from services.agent.domain.messages import Draft, Message
from services.agent.domain.models import Agent, AgentId, RunId, SessionId, ToolCallId
from services.agent.domain.places import Places
from services.agent.domain.ports import RunJournal
from services.agent.domain.queue import TRUSTING, Caution, Claim, RunQueue, Standing
from services.agent.domain.run_models import Offered, RunState, Usage
from services.agent.domain.stores import AgentStore
from services.agent.domain.sub_runs import Answered, Task
from services.agent.domain.tools.agent_tools import AgentTools
from services.agent.domain.tools.execute import ToolBounds
from services.agent.domain.tools.function import object_schema
from services.agent.domain.tools.registry import Tools
from services.agent.domain.tools.sources import KnowledgeTools, RegisteredTools
from services.agent.domain.turn.loop import Loop
from services.agent.domain.turn.plan import Planner
from services.agent.holding import WorkerLimits
from services.agent.worker import Worker
from services.common.errors import UnavailableError
from services.common.identity import Identity
from services.common.paging import Listing
from services.common.text import Json
from tests.agent.hints import LocalHints
from tests.agent.turns import Models, Shelf
from tests.contracts.simulation.backends import Host

T = TypeVar("T")

LEASE = 30.0
CRASH_LIMIT = 3
TOOL_SECONDS = 25.0
RUNS_AT_ONCE = 2

OPERATIONS = (
    "claim",
    "ask",
    "context",
    "renew",
    "standing",
    "hand_back",
    "set_state",
    "append_assistant",
    "start_tool_calls",
    "append_tool_results",
    "park",
    "remember",
    "finish",
)
WHEN = ("before", "amid", "after")
POINTS = tuple(f"{when} {operation}" for operation in OPERATIONS for when in WHEN)
"""Where a process can be caught; amid an operation, it happens even if nobody waits any more."""


class Surroundings(Protocol):
    """What a process needs of the world around it."""

    @property
    def hints(self) -> LocalHints:
        """Reach all processes."""

    def clock(self) -> datetime:
        """The wall clock, as the database has it."""

    def noted(self, what: str) -> None:
        """Something happened that is worth counting."""

    def asked(self, request: ModelRequest) -> None:
        """A model is asked."""

    def begun(self, tool: str, context: ToolContext) -> None:
        """A tool begins to have its effect."""


@dataclass(eq=False)
class Waiting:
    """Something that waits until it is told how to go on.

    Attributes:
        what: a model, a tool's name, or a database operation.
        request: what the model is asked.
        future: takes the answer.
    """

    what: str
    future: "asyncio.Future[object]"
    request: ModelRequest | None = None


@dataclass(eq=False)
class Process:
    """One worker process.

    Attributes:
        world: around it.
        host: what it runs on.
        questions: its models that are asked.
        jobs: its tools that run.
        caught: its database operations that are held before or after they happen.
        catch_at: the points where it is caught, each once.
        fail_at: the points where the database fails, each once.
        frozen: whether it stands still.
    """

    world: Surroundings
    host: Host
    questions: list[Waiting] = field(default_factory=list)
    jobs: list[Waiting] = field(default_factory=list)
    caught: list[Waiting] = field(default_factory=list)
    catch_at: set[str] = field(default_factory=set)
    fail_at: set[str] = field(default_factory=set)
    frozen: bool = False

    def __post_init__(self) -> None:
        self.loop = self.host.loop
        self._dead = False
        self._leave = asyncio.Event()
        self._main = self.loop.create_task(self._live())

    @property
    def gone(self) -> bool:
        """Whether it has left, or was killed."""
        return self._main.done()

    def settle(self) -> bool:
        """Let it do what it can do at this moment; gives whether it did anything."""
        return not self.frozen and not self.gone and self.loop.settle()

    def leave(self) -> None:
        """Ask it to stop in order."""
        self._leave.set()

    def crash(self) -> None:
        """Kill it: nothing that it does from now on reaches the database."""
        self._dead = True
        for _ in range(100):
            if self._main.done():
                break
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.settle()

    def check_end(self) -> None:
        """Make sure that it ended, and ended well unless it was killed."""
        assert self._main.done(), "it cannot be killed"
        assert not asyncio.all_tasks(self.loop)
        assert self._dead or self._main.exception() is None

    async def _live(self) -> None:
        tools = Tools([AskedTool(self, "look", idempotent=True), AskedTool(self, "send")])
        loop = Loop(
            Planner(
                Models(AskedModel(self)),
                [RegisteredTools(tools), KnowledgeTools(Shelf()), AgentTools(FoundAgents(self))],
            ),
            self.world.clock,
            ReachedMemories(self),
            ToolBounds(seconds=TOOL_SECONDS, result_chars=200),
            approval_time=timedelta(seconds=LEASE),
        )
        worker = Worker(
            WatchedQueue(self, self.host.stores.queue),
            loop.run,
            places=Places(RUNS_AT_ONCE),
            listener=self.world.hints,
            notifier=self.world.hints,
            limits=WorkerLimits(
                lease=timedelta(seconds=LEASE),
                crash_limit=CRASH_LIMIT,
            ),
        )
        async with worker.working():
            await self._leave.wait()

    async def operate(self, name: str, operation: Callable[[], Coroutine[None, None, T]]) -> T:
        """Do a database operation, with points before, amid and after it."""
        await self._point(f"before {name}")
        try:
            await self._point(f"amid {name}")
        except asyncio.CancelledError:
            if not self._dead:
                with suppress(FencedError):
                    await self._do(name, operation)
            raise
        result = await self._do(name, operation)
        await self._point(f"after {name}")
        return result

    async def _do(self, name: str, operation: Callable[[], Coroutine[None, None, T]]) -> T:
        """Do it to its end; who is cancelled meanwhile learns of that only then."""
        cancelled = False
        with self.loop.outside():
            task = self.loop.create_task(operation())
            while not task.done():
                try:
                    await asyncio.wait({task})
                except asyncio.CancelledError:
                    cancelled = True
        if isinstance(task.exception(), FencedError):
            self.world.noted(f"fenced {name}")
        if cancelled:
            raise asyncio.CancelledError
        return task.result()

    async def wait(self, among: list[Waiting], what: str, request: ModelRequest | None) -> object:
        """Wait for whatever the test decides."""
        waiting = Waiting(what, self.loop.create_future(), request)
        among.append(waiting)
        try:
            return await waiting.future
        finally:
            among.remove(waiting)

    async def _point(self, name: str) -> None:
        self._check_alive()
        if name in self.fail_at:
            self.fail_at.remove(name)
            self.world.noted(f"failed {name}")
            raise UnavailableError("The database cannot be reached.")
        if name in self.catch_at:
            self.catch_at.remove(name)
            self.world.noted(f"caught {name}")
            await self.wait(self.caught, name, None)
            self._check_alive()

    def _check_alive(self) -> None:
        if self._dead:
            raise asyncio.CancelledError


class FoundAgents:
    """Finds agents as the process reaches the database."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def named(
        self, identity: Identity, agent_ids: Sequence[AgentId]
    ) -> Mapping[AgentId, Agent]:
        agents = self._process.host.stores.agents
        return await self._process.operate("named", lambda: _found(agents, identity, agent_ids))


async def _found(
    agents: AgentStore, identity: Identity, agent_ids: Sequence[AgentId]
) -> Mapping[AgentId, Agent]:
    return await agents.named(identity, agent_ids)


class ReachedMemories:
    """A `MemoryStore` as the process reaches the database."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._memories = process.host.stores.memories

    async def get(self, identity: Identity, session_id: SessionId) -> Memory:
        return await self._process.operate(
            "get memory", lambda: self._memories.get(identity, session_id)
        )

    async def open_turn(self, identity: Identity, session_id: SessionId) -> int:
        return await self._process.operate(
            "open turn", lambda: self._memories.open_turn(identity, session_id)
        )

    async def put(
        self, identity: Identity, session_id: SessionId, summary: Summary, *, revision: int
    ) -> Memory | None:
        return await self._process.operate(
            "put summary",
            lambda: self._memories.put(identity, session_id, summary, revision=revision),
        )

    async def clear(self, identity: Identity, session_id: SessionId) -> Memory:
        return await self._process.operate(
            "clear memory", lambda: self._memories.clear(identity, session_id)
        )

    async def page(
        self,
        identity: Identity,
        session_id: SessionId,
        *,
        after: Place,
        before: Place,
        newest_first: bool,
        most: int,
        max_bytes: int,
    ) -> Listing[Said]:
        return await self._process.operate(
            "read page",
            lambda: self._memories.page(
                identity,
                session_id,
                after=after,
                before=before,
                newest_first=newest_first,
                most=most,
                max_bytes=max_bytes,
            ),
        )


class AskedModel:
    """A model that says what the test tells it to."""

    info = ModelInfo("m", "m-1", Provider.OPENAI, default=True)

    def __init__(self, process: Process) -> None:
        self._process = process

    async def complete(self, request: ModelRequest) -> ModelReply:
        self._process.world.asked(request)
        reply = await self._process.wait(self._process.questions, "model", request)
        assert isinstance(reply, ModelReply)
        return reply


class AskedTool:
    """A tool that does what the test tells it to; it has its effect as soon as it begins."""

    def __init__(self, process: Process, name: str, *, idempotent: bool = False) -> None:
        self._process = process
        schema = object_schema({"n": {"type": "integer"}}, [])
        effect = ToolEffect.READ_ONLY if idempotent else ToolEffect.OUTBOUND
        self.spec = ToolSpec(name, f"The tool {name}.", schema, idempotent, effect)

    async def run(self, arguments: Mapping[str, Json], context: ToolContext) -> ToolResult:
        self._process.world.begun(self.spec.name, context)
        result = await self._process.wait(self._process.jobs, self.spec.name, None)
        assert isinstance(result, ToolResult)
        return result


class WatchedQueue:
    """A `RunQueue` whose operations can be caught, cut off and made to fail."""

    def __init__(self, process: Process, queue: RunQueue) -> None:
        self._process = process
        self._queue = queue

    async def claim(
        self, *, lease: timedelta, most: int, caution: Caution = TRUSTING
    ) -> Sequence[Claim]:
        return await self._process.operate(
            "claim", lambda: self._queue.claim(lease=lease, most=most, caution=caution)
        )

    async def context(self, claim: Claim) -> RunContext:
        return await self._process.operate("context", lambda: self._queue.context(claim))

    def journal(self, claim: Claim) -> RunJournal:
        return WatchedJournal(self._process, self._queue.journal(claim))

    async def ask(self, claim: Claim, task: Task, *, lease: timedelta) -> Claim | Answered:
        return await self._process.operate("ask", lambda: self._queue.ask(claim, task, lease=lease))

    async def renew(self, claims: Sequence[Claim], *, lease: timedelta) -> Mapping[RunId, Standing]:
        return await self._process.operate("renew", lambda: self._queue.renew(claims, lease=lease))

    async def standing(self, claims: Sequence[Claim]) -> Mapping[RunId, Standing]:
        return await self._process.operate("standing", lambda: self._queue.standing(claims))

    async def hand_back(self, claim: Claim) -> None:
        await self._process.operate("hand_back", lambda: self._queue.hand_back(claim))


class WatchedJournal:
    """A `RunJournal` whose writes can be caught, cut off and made to fail."""

    def __init__(self, process: Process, journal: RunJournal) -> None:
        self._process = process
        self._journal = journal

    async def set_state(self, state: RunState, *, offered: Offered | None = None) -> None:
        await self._process.operate(
            "set_state", lambda: self._journal.set_state(state, offered=offered)
        )

    async def append_assistant(
        self, draft: Draft, *, usage: Usage, starting: Collection[int] = ()
    ) -> Message:
        return await self._process.operate(
            "append_assistant",
            lambda: self._journal.append_assistant(draft, usage=usage, starting=starting),
        )

    async def start_tool_calls(self, call_ids: Sequence[ToolCallId]) -> None:
        await self._process.operate(
            "start_tool_calls", lambda: self._journal.start_tool_calls(call_ids)
        )

    async def append_tool_results(
        self, drafts: Sequence[Draft], *, then: RunState | None = None
    ) -> Sequence[Message]:
        return await self._process.operate(
            "append_tool_results", lambda: self._journal.append_tool_results(drafts, then=then)
        )

    async def park(self, questions: Sequence[Question], *, within: timedelta) -> None:
        await self._process.operate("park", lambda: self._journal.park(questions, within=within))

    async def remember(self, summary: Summary, *, revision: int, usage: Usage) -> Memory | None:
        return await self._process.operate(
            "remember", lambda: self._journal.remember(summary, revision=revision, usage=usage)
        )

    async def finish(
        self,
        ending: Ending,
        closing: Sequence[Draft] = (),
        *,
        usage: Usage | None = None,
        steps: int = 0,
    ) -> Sequence[Message]:
        return await self._process.operate(
            "finish", lambda: self._journal.finish(ending, closing, usage=usage, steps=steps)
        )
