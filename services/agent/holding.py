"""The runs in a worker's hands: a lease each, watched over, and an orderly end for all.

    hold ──▶ drive (the turn loop, with the journal) ──▶ ask: the run of a sub-agent, held likewise
      └──── decided: done · cancelled · agent gone · failed · hand back · lost
    keep: renews the leases and learns of wishes to stop

Whatever ends the work on a run is *decided* first and carried out by the run's own holder: the loop
is cancelled, then the last write is made, fenced like all others. A holder whose lease may have
lapsed, by its own monotonic clock, writes nothing any more.

The run of a sub-agent is worked on beside the run that asks for it and that waits for it meanwhile.
So it needs no place of its own, and however deep runs nest, none waits for another to make room.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TypeAlias

import structlog

from services.agent.domain import hints, outcome
from services.agent.domain.chat import RunContext
from services.agent.domain.drafts import MAX_TEXT_BYTES, cut
from services.agent.domain.errors import AgentDeletedError, FencedError
from services.agent.domain.held import Held
from services.agent.domain.journal import HintingJournal, patiently
from services.agent.domain.outcome import Outcome
from services.agent.domain.places import callers_place
from services.agent.domain.ports import RunJournal
from services.agent.domain.queue import Claim, RunQueue
from services.agent.domain.sub_runs import Answered, Task
from services.common.errors import (
    AbortedError,
    ResourceExhaustedError,
    ServiceError,
    UnavailableError,
)
from services.common.hints import Listener, Notifier
from services.common.tasks import BackgroundTasks, background_tasks

Turns: TypeAlias = Callable[[RunContext, RunJournal], Awaitable[object]]
"""Works on a run to its end, or raises FencedError."""

_RETRY_PAUSE = 0.1
_BETWEEN_LOOKS = 0.05

# As they are, not as the errors of this service that derive from them.
_DATABASE_ERRORS = (AbortedError, ResourceExhaustedError, UnavailableError)


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """What bounds a worker.

    Attributes:
        lease: for how long a run stays its own without a renewal.
        crash_limit: how many workers may be lost on a run before it is given up.
        stop_grace: seconds for a cancelled loop to end before the run is ended over its head.
    """

    lease: timedelta = timedelta(seconds=30)
    crash_limit: int = 5
    stop_grace: float = 0.5

    @property
    def suspected_at(self) -> int:
        """The loss of a worker from which on a run is suspected: the last but one it is allowed."""
        return max(self.crash_limit - 2, 1)


class Holding:
    """Holds runs for as long as a block of `open` lasts; all are handed back at its end."""

    def __init__(
        self,
        queue: RunQueue,
        turns: Turns,
        *,
        listener: Listener,
        notifier: Notifier,
        limits: WorkerLimits,
    ) -> None:
        """Nothing is held yet.

        Args:
            queue: what runs are taken from.
            turns: works on one.
            listener: hears of wishes to stop.
            notifier: tells of runs that are handed back, and of what is written.
            limits: bound it.
        """
        self._queue = queue
        self._turns = turns
        self._listener = listener
        self._notifier = notifier
        self._limits = limits
        self._lease = limits.lease.total_seconds()
        self._held: dict[Held, asyncio.Task[None]] = {}
        self._tasks: BackgroundTasks | None = None
        self._log = structlog.get_logger("worker")

    @property
    def claims(self) -> list[Claim]:
        """The holds on all runs in hand."""
        return [held.claim for held in self._held]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Hold runs for as long as the block lasts; what is in hand then is handed back."""
        async with background_tasks() as tasks:
            tasks.start("keep runs", self._keep())
            self._tasks = tasks
            try:
                yield
            finally:
                await self._hand_all_back()

    def hold(
        self, claim: Claim, until: float, *, crash_limit: int, then: Callable[[], None]
    ) -> tuple[Held, asyncio.Task[None]]:
        """Have a run worked on that was just taken.

        Args:
            claim: the hold on it.
            until: the monotonic time at which its lease may lapse, unless it is renewed.
            crash_limit: how many workers may have been lost on it.
            then: called once it is out of hand again.

        Returns:
            the run in hand, and the task that is done once it is not any more.
        """
        if self._tasks is None:
            raise RuntimeError("runs are held within a block of `open` only")
        held = Held(claim, self._journal(claim), until)
        early = outcome.of_claim(claim, crash_limit=crash_limit)
        if early is not None:
            held.decide(early)
        task = self._tasks.start(f"run {claim.run.id}", self._hold(held, then))
        self._held[held] = task
        return held, task

    async def _ask(self, caller: Held, task: Task) -> Answered:
        """Work on what a run asks of another agent until that has ended; see `AskAgent`."""
        task = replace(task, text=cut(task.text, MAX_TEXT_BYTES))
        while True:
            until = asyncio.get_running_loop().time() + self._lease
            asked = await self._asked(caller, task)
            if isinstance(asked, Answered):
                return asked
            self._notifier.notify(asked.run.session_id)
            await self._work_on(asked, until, caller)

    async def _asked(self, caller: Held, task: Task) -> Claim | Answered:
        try:
            return await patiently(
                lambda: self._queue.ask(caller.claim, task, lease=self._limits.lease)
            )
        except FencedError:
            caller.decide(await self._why_fenced(caller))
        except ServiceError as error:
            if type(error) not in _DATABASE_ERRORS:
                raise
            self._log.warning("no agent can be asked", reason=error.reason)
            caller.decide(Outcome.HAND_BACK)
        # The caller is about to be stopped, and this with it: no result is due any more.
        never: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        return await never

    async def _work_on(self, claim: Claim, until: float, caller: Held) -> None:
        """Hold the run of a sub-agent while its caller waits; stopped with it, it is told why."""
        # Given up before its caller, which can then go on without it.
        limit = self._limits.suspected_at
        with callers_place():
            held, task = self.hold(claim, until, crash_limit=limit, then=lambda: None)
            try:
                await asyncio.wait({task})
            finally:
                if not task.done():
                    held.decide(outcome.of_callee(caller.outcome))
                    await asyncio.wait({task})

    def _journal(self, claim: Claim) -> RunJournal:
        return HintingJournal(
            self._queue.journal(claim), session_id=claim.run.session_id, notifier=self._notifier
        )

    async def _hold(self, held: Held, then: Callable[[], None]) -> None:
        """Have the run worked on until it is decided what becomes of it, and carry that out."""
        run = held.claim.run
        structlog.contextvars.bind_contextvars(run_id=run.id, epoch=held.claim.epoch)
        async with background_tasks() as tasks:
            try:
                work = tasks.start(f"turns of {run.id}", self._drive(held))
                if await held.decided() is Outcome.LOST:
                    self._log.warning("run lost")
                work.cancel()
                await asyncio.wait({work}, timeout=self._limits.stop_grace)
                await self._carry_out(held)
            finally:
                del self._held[held]
                then()

    async def _drive(self, held: Held) -> None:
        if held.outcome is not None:
            return
        try:
            context = await patiently(lambda: self._queue.context(held.claim))
            asking = replace(context, ask=partial(self._ask, held))
            await self._turns(asking, held.journal)
        except FencedError:
            held.decide(await self._why_fenced(held))
        except AgentDeletedError:
            held.decide(Outcome.AGENT_GONE)
        except asyncio.CancelledError:
            # Where nothing was decided before, nobody here asked for this: a fault like any other.
            held.decide(Outcome.FAIL)
            raise
        except Exception as error:  # noqa: BLE001 - a fault in one run must not end all others
            self._interrupted(held, error)
        else:
            held.decide(Outcome.DONE)

    def _interrupted(self, held: Held, error: Exception) -> None:
        if held.outcome is not None:
            # Cancelled amid a statement: what the driver makes of that does not matter any more.
            self._log.debug("run stopped", error=repr(error))
        elif type(error) in _DATABASE_ERRORS:
            self._log.warning("run interrupted", cause=repr(error.__cause__))
            held.decide(Outcome.HAND_BACK)
        else:
            self._log.error("run failed", exc_info=error)
            held.decide(Outcome.FAIL)

    async def _why_fenced(self, held: Held) -> Outcome:
        """A wish to cancel fences the loop off, too."""
        try:
            standing = (await self._queue.standing([held.claim])).get(held.claim.run.id)
        except ServiceError:
            return Outcome.HAND_BACK
        return outcome.of_standing(standing) or Outcome.HAND_BACK

    async def _carry_out(self, held: Held) -> None:
        """Make the last write; tried again for as long as the lease holds."""
        while not held.lapsed:
            try:
                await self._write_end(held)
            except ServiceError as error:
                self._log.warning("run cannot be ended yet", reason=error.reason)
                await asyncio.sleep(_RETRY_PAUSE)
            except FencedError:
                why = await self._why_fenced(held)
                if why not in {Outcome.CANCEL, Outcome.INTERRUPT} or why is held.outcome:
                    return
                held.outcome = why
            except Exception:  # noqa: BLE001 - it must not end all others either
                # Its lease is left to lapse.
                self._log.exception("run cannot be ended")
                return
            else:
                return

    async def _write_end(self, held: Held) -> None:
        ending = held.outcome and held.outcome.ending
        if ending is not None:
            await held.journal.finish(ending)
        elif held.outcome is Outcome.HAND_BACK:
            await self._queue.hand_back(held.claim)
            self._notifier.notify(hints.RUNS)
            self._notifier.notify(held.claim.run.session_id)

    async def _hand_all_back(self) -> None:
        holding = list(self._held.values())
        for held in self._held:
            held.decide(Outcome.HAND_BACK)
        if holding:
            await asyncio.wait(holding)

    async def _keep(self) -> None:
        """Renew the leases every third of their time; look for wishes to stop after hints.

        One look is for all runs in hand and for all hints that came since the last.
        """
        clock = asyncio.get_running_loop().time
        renewed = clock()
        with self._listener.subscribe(hints.STOPS) as news:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(renewed + self._lease / 3):
                        await news.wait()
                due = clock() >= renewed + self._lease / 3
                renewed = clock() if due else renewed
                if self._held:
                    await self._look_after(list(self._held), renew=due)
                    await asyncio.sleep(_BETWEEN_LOOKS)

    async def _look_after(self, held: Sequence[Held], *, renew: bool) -> None:
        until = asyncio.get_running_loop().time() + self._lease
        claims = [each.claim for each in held]
        try:
            if renew:
                standings = await self._queue.renew(claims, lease=self._limits.lease)
            else:
                standings = await self._queue.standing(claims)
        except ServiceError as error:
            self._log.warning("leases cannot be looked after", reason=error.reason)
            return
        for each in held:
            standing = standings.get(each.claim.run.id)
            decided = outcome.of_standing(standing)
            if decided is not None:
                each.decide(decided)
            if renew and standing is not None:
                each.until = until
