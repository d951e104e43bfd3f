"""Workers over the agent's stores, with loops that the tests write."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

from services.agent.domain import hints
from services.agent.domain.chat import Ending, RunContext
from services.agent.domain.errors import FencedError
from services.agent.domain.messages import Role
from services.agent.domain.models import RunId
from services.agent.domain.places import Places
from services.agent.domain.ports import RunJournal
from services.agent.domain.queue import TRUSTING, Caution, Claim, RunQueue, Standing
from services.agent.domain.run_models import Run, RunState, StopReason, Usage
from services.agent.domain.sub_runs import Answered, Task
from services.agent.holding import WorkerLimits
from services.agent.worker import Worker
from services.common.db import Pool, connection
from services.common.errors import UnavailableError
from tests.agent.hints import LocalHints
from tests.contracts.agent_stores import ALICE, Stores, answer, asking, call, result_of

ENDED = Ending(RunState.FINISHED, StopReason.END_TURN)
LEASE = timedelta(seconds=0.6)
"""Short, for tests of what happens when it lapses."""

LONG = timedelta(seconds=60)
ENOUGH = 10.0

Turns = Callable[[RunContext, RunJournal], Awaitable[object]]


async def reply(context: RunContext, journal: RunJournal) -> None:
    """Answers at once."""
    await journal.finish(ENDED, [answer(f"To {context.turn[0].text}")], steps=1)


class Blocked:
    """A loop that gets to work and then waits until it is let go, or stopped."""

    def __init__(self, *before: str) -> None:
        self.begun: dict[RunId, asyncio.Event] = {}
        self.stopped: set[RunId] = set()
        self.most_at_once = 0
        self.release = asyncio.Event()
        self._at_once = 0

    async def __call__(self, context: RunContext, journal: RunJournal) -> None:
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            await journal.set_state(RunState.THINKING)
            self.event(context.run.id).set()
            await self.release.wait()
            await reply(context, journal)
        except asyncio.CancelledError:
            self.stopped.add(context.run.id)
            raise
        finally:
            self._at_once -= 1

    def event(self, run_id: RunId) -> asyncio.Event:
        """Set once the run is being worked on."""
        return self.begun.setdefault(run_id, asyncio.Event())

    async def works_on(self, *runs: Run) -> None:
        """Wait until these runs are being worked on."""
        async with asyncio.timeout(ENOUGH):
            for run in runs:
                await self.event(run.id).wait()


class Hung:
    """A loop that never ends by itself; every second one is amid a tool call.

    Attributes:
        late: what comes of each write that is tried once the loop was stopped.
    """

    def __init__(self) -> None:
        self.late: list[type[BaseException] | None] = []
        self._begun: set[RunId] = set()

    async def __call__(self, context: RunContext, journal: RunJournal) -> None:
        amid = len(self._begun) % 2 == 0
        if amid:
            await journal.append_assistant(asking(call("a")), usage=Usage(), starting=[0])
        else:
            await journal.set_state(RunState.THINKING)
        self._begun.add(context.run.id)
        try:
            await asyncio.Event().wait()
        finally:
            try:
                await journal.append_tool_results([result_of(call("a"))])
                self.late.append(None)
            except FencedError as error:
                self.late.append(type(error))

    async def works_on(self, *runs: Run) -> None:
        """Wait until these runs are being worked on."""
        async with asyncio.timeout(3 * ENOUGH):
            while {run.id for run in runs} - self._begun:  # noqa: ASYNC110 - as in `until`
                await asyncio.sleep(0.01)


class Office:
    """Stores, hints, and workers that come and go."""

    def __init__(self, stores: Stores, pool: Pool) -> None:
        self.stores = stores
        self._pool = pool
        self.hints = LocalHints(poll=0.2)
        self._stack = AsyncExitStack()

    async def employ(
        self,
        turns: Turns,
        *,
        queue: RunQueue | None = None,
        places: Places | None = None,
        runs_at_once: int = 32,
        **limits: Any,
    ) -> AsyncExitStack:
        """A worker that works until the stack, or the office, is closed."""
        worker = Worker(
            queue or self.stores.queue,
            turns,
            places=places or Places(runs_at_once),
            listener=self.hints,
            notifier=self.hints,
            limits=WorkerLimits(**{"lease": LONG, "stop_grace": 0.2, **limits}),
        )
        stack = await self._stack.enter_async_context(AsyncExitStack())
        await stack.enter_async_context(worker.working())
        return stack

    async def say(self, text: str = "Hello", *, after: Run | None = None) -> Run:
        """A waiting run, in a session of its own or behind another."""
        if after is None:
            run = await self.stores.started(text)
        else:
            run, _ = await self.stores.runs.start(ALICE, after.session_id, text)
        self.hints.notify(hints.RUNS)
        return run

    async def cancel(self, run: Run) -> Run:
        """The run after it was asked to stop."""
        cancelled = await self.stores.runs.cancel(ALICE, run.id)
        self.hints.notify(hints.STOPS)
        return cancelled

    async def now(self, run: Run) -> Run:
        """The run as it is now."""
        return await self.stores.runs.get(ALICE, run.id)

    async def ended(self, run: Run, *, within: float = ENOUGH) -> Run:
        """The run once it has ended."""
        return await self.until(run, lambda each: each.state.final, within=within)

    async def until(
        self, run: Run, condition: Callable[[Run], bool], *, within: float = ENOUGH
    ) -> Run:
        """The run once something is true of it."""
        async with asyncio.timeout(within):
            while not condition(current := await self.now(run)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return current

    async def crashes(self, run: Run) -> int:
        """How often a worker was lost while it held the run."""
        async with connection(self._pool) as lent:
            count: int = await lent.fetchval("SELECT crashes FROM run WHERE id = $1", run.id)
            return count

    async def roles(self, run: Run) -> list[Role]:
        """Who speaks in the run's session, in order."""
        return [message.role for message in await self.stores.said(run)]

    async def close(self) -> None:
        """Let all workers go."""
        await self._stack.aclose()


class Faulty:
    """A queue whose calls fail as if the database were away, or as if another had the runs."""

    CALLS = ("claim", "ask", "renew", "standing", "hand_back")

    def __init__(self, queue: RunQueue) -> None:
        self._queue = queue
        self.down: set[str] = set()
        self.overtaken = False
        self.asked = {name: asyncio.Event() for name in self.CALLS}

    async def claim(
        self, *, lease: timedelta, most: int, caution: Caution = TRUSTING
    ) -> Sequence[Claim]:
        self._fail("claim")
        return await self._queue.claim(lease=lease, most=most, caution=caution)

    async def context(self, claim: Claim) -> RunContext:
        return await self._queue.context(claim)

    def journal(self, claim: Claim) -> RunJournal:
        return self._queue.journal(claim)

    async def ask(self, claim: Claim, task: Task, *, lease: timedelta) -> Claim | Answered:
        self._fail("ask")
        return await self._queue.ask(claim, task, lease=lease)

    async def renew(self, claims: Sequence[Claim], *, lease: timedelta) -> Mapping[RunId, Standing]:
        self._fail("renew")
        return {} if self.overtaken else await self._queue.renew(claims, lease=lease)

    async def standing(self, claims: Sequence[Claim]) -> Mapping[RunId, Standing]:
        self._fail("standing")
        return {} if self.overtaken else await self._queue.standing(claims)

    async def hand_back(self, claim: Claim) -> None:
        self._fail("hand_back")
        await self._queue.hand_back(claim)

    def _fail(self, name: str) -> None:
        self.asked[name].set()
        if name in self.down:
            raise UnavailableError("The database cannot be reached.")
