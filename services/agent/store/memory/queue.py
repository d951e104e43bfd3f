"""The queue of runs in memory."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from services.agent.domain.access import sees
from services.agent.domain.chat import RunContext
from services.agent.domain.errors import AgentDeletedError
from services.agent.domain.ledger import ToolCallState
from services.agent.domain.messages import Message
from services.agent.domain.models import Agent, RunId
from services.agent.domain.queue import MAX_HISTORY_BYTES, TRUSTING, Caution, Claim, Standing
from services.agent.domain.run_models import Run, RunState
from services.agent.store.memory.database import Held, MemoryDatabase, bounded
from services.agent.store.memory.journal import MemoryRunJournal, held_by, holds
from services.common.identity import Identity


class MemoryRunQueue:
    """`RunQueue` in memory; the methods are explained there."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    async def claim(
        self, *, lease: timedelta, most: int, caution: Caution = TRUSTING
    ) -> Sequence[Claim]:
        lapsed = list(self._lapsed())
        suspected = [held for held in lapsed if held.crashes + 1 >= caution.crashes]
        trusted = [held for held in lapsed if held.crashes + 1 < caution.crashes]
        candidates = [*suspected[: caution.most], *trusted, *self._db.waiting()][:most]
        return [self._take(held, lease) for held in candidates]

    async def context(self, claim: Claim) -> RunContext:
        held = held_by(self._db, claim)
        agent = self._agent(held.run)
        if agent is None:
            raise AgentDeletedError.of(held.run.agent_id)
        held.settings = held.settings or agent.settings
        return RunContext(
            run=held.run,
            agent=replace(agent, settings=held.settings),
            identity=Identity(held.run.tenant, held.run.user_id),
            history=self._history(held.run, held.settings.window.messages),
            turn=self._said(held.run, held.run.turn),
            started_calls=frozenset(
                call.tool_call_id for call in held.calls if call.state is ToolCallState.STARTED
            ),
            elapsed=self._db.clock() - (held.run.start_time or self._db.clock()),
        )

    def journal(self, claim: Claim) -> MemoryRunJournal:
        return MemoryRunJournal(self._db, claim)

    async def renew(self, claims: Sequence[Claim], *, lease: timedelta) -> Mapping[RunId, Standing]:
        standings = await self.standing(claims)
        for run_id in standings:
            self._db.runs[run_id].lease_until = self._db.clock() + lease
        return standings

    async def standing(self, claims: Sequence[Claim]) -> Mapping[RunId, Standing]:
        standings: dict[RunId, Standing] = {}
        for claim in claims:
            held = self._db.runs.get(claim.run.id)
            if held is not None and holds(held, claim):
                gone = self._agent(held.run) is None
                standings[claim.run.id] = Standing(held.run.cancel_reason, gone)
        return standings

    async def hand_back(self, claim: Claim) -> None:
        held = self._db.runs.get(claim.run.id)
        if held is not None and holds(held, claim):
            held.lease_until = None
            held.run = replace(held.run, state=RunState.IDLE)

    def _lapsed(self) -> Iterator[Held]:
        now = self._db.clock()
        for held in self._db.runs.values():
            if held.lease_until is not None and held.lease_until < now:
                yield held

    def _take(self, held: Held, lease: timedelta) -> Claim:
        if held.lease_until is not None:
            held.crashes += 1
        held.epoch += 1
        held.lease_until = self._db.clock() + lease
        started = held.run.start_time or self._db.clock()
        held.run = replace(held.run, state=RunState.PLANNING, start_time=started)
        return Claim(held.run, held.epoch, held.crashes)

    def _agent(self, run: Run) -> Agent | None:
        agent = self._db.agents.get(run.agent_id)
        seen = agent is not None and sees(Identity(run.tenant, run.user_id), agent)
        return agent if seen else None

    def _said(self, run: Run, turn: int) -> list[Message]:
        said = self._db.messages[run.session_id]
        return [
            each
            for each in said
            if self._db.runs[each.run_id].run.turn == turn and not each.discarded
        ]

    def _history(self, run: Run, most: int) -> list[Message]:
        turns = [held.run.turn for held in self._db.runs_of(run.session_id)]
        past = [each for turn in turns if turn < run.turn for each in self._said(run, turn)]
        newest_first = past[::-1]
        return [*bounded(newest_first, most=most, max_bytes=MAX_HISTORY_BYTES).items][::-1]
