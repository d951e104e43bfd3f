"""The queue of runs in memory."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from services.agent.domain.access import sees
from services.agent.domain.chat import RunContext
from services.agent.domain.errors import AgentDeletedError, FencedError
from services.agent.domain.ledger import ToolCallState
from services.agent.domain.memory.models import Memory
from services.agent.domain.messages import Draft, Message, Role
from services.agent.domain.models import Agent, MessageId, RunId, Window
from services.agent.domain.queue import MAX_HISTORY_BYTES, TRUSTING, Caution, Claim, Standing
from services.agent.domain.run_models import Parent, Run, RunState
from services.agent.domain.sub_runs import Answered, Task
from services.agent.domain.titles import titles_of
from services.agent.store.memory.database import MemoryDatabase, StoredRun, bounded
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
        suspected = [stored for stored in lapsed if stored.crashes + 1 >= caution.crashes]
        trusted = [stored for stored in lapsed if stored.crashes + 1 < caution.crashes]
        candidates = [*suspected[: caution.most], *trusted, *self._db.waiting()][:most]
        return [self._take(stored, lease) for stored in candidates]

    async def context(self, claim: Claim) -> RunContext:
        stored = held_by(self._db, claim)
        agent = self._agent(stored.run)
        if agent is None:
            raise AgentDeletedError.of(stored.run.agent_id)
        stored.settings = stored.settings or agent.settings
        return RunContext(
            run=stored.run,
            agent=replace(agent, settings=stored.settings),
            identity=Identity(stored.run.tenant, stored.run.user_id),
            history=self._history(stored.run, stored.settings.window),
            turn=self._said(stored.run, stored.run.turn),
            started_calls=frozenset(
                call.tool_call_id for call in stored.calls if call.state is ToolCallState.STARTED
            ),
            elapsed=self._db.clock() - (stored.run.start_time or self._db.clock()) - stored.waited,
            approvals={
                each.question.tool_call_id: each
                for each in self._db.approvals(stored)
                if each.step == stored.run.step_count
            },
            session_time_zone=self._db.sessions[stored.run.session_id].time_zone,
        )

    def journal(self, claim: Claim) -> MemoryRunJournal:
        return MemoryRunJournal(self._db, claim)

    async def ask(self, claim: Claim, task: Task, *, lease: timedelta) -> Claim | Answered:
        caller = held_by(self._db, claim).run
        if caller.cancel_requested:
            raise FencedError
        sub = self._asked(caller, task.call_key) or self._accept(caller, task)
        return self._answered(sub) if sub.run.state.final else self._take(sub, lease)

    async def renew(self, claims: Sequence[Claim], *, lease: timedelta) -> Mapping[RunId, Standing]:
        standings = await self.standing(claims)
        for run_id in standings:
            self._db.runs[run_id].lease_until = self._db.clock() + lease
        return standings

    async def standing(self, claims: Sequence[Claim]) -> Mapping[RunId, Standing]:
        standings: dict[RunId, Standing] = {}
        for claim in claims:
            stored = self._db.runs.get(claim.run.id)
            if stored is not None and holds(stored, claim):
                gone = self._agent(stored.run) is None
                standings[claim.run.id] = Standing(stored.run.cancel_reason, gone)
        return standings

    async def hand_back(self, claim: Claim) -> None:
        stored = self._db.runs.get(claim.run.id)
        if stored is not None and holds(stored, claim):
            stored.lease_until = None
            stored.run = replace(stored.run, state=RunState.IDLE)

    def _lapsed(self) -> Iterator[StoredRun]:
        now = self._db.clock()
        for stored in self._db.runs.values():
            lapsed = stored.lease_until is not None and stored.lease_until < now
            if lapsed and stored.run.parent is None:
                yield stored

    def _take(self, stored: StoredRun, lease: timedelta) -> Claim:
        if stored.run.state.in_hand:
            stored.crashes += 1
        if stored.park_time is not None:
            stored.waited += self._db.clock() - stored.park_time
            stored.park_time = None
        stored.epoch += 1
        stored.lease_until = self._db.clock() + lease
        started = stored.run.start_time or self._db.clock()
        stored.run = replace(stored.run, state=RunState.PLANNING, start_time=started)
        return Claim(stored.run, stored.epoch, stored.crashes)

    def _asked(self, caller: Run, call_key: str) -> StoredRun | None:
        """The run that this call asked for before."""
        for sub in self._db.subs(caller.id):
            if sub.run.parent is not None and sub.run.parent.call_key == call_key:
                return sub
        return None

    def _accept(self, caller: Run, task: Task) -> StoredRun:
        """The run of a sub-agent in a session of its own."""
        identity = Identity(caller.tenant, caller.user_id)
        agent = self._db.agents.get(task.agent_id)
        if agent is None or not sees(identity, agent):
            raise AgentDeletedError.of(task.agent_id)
        session = self._db.open_session(
            identity,
            agent.id,
            title=titles_of(task.text).of(agent.settings),
            time_zone=self._db.sessions[caller.session_id].time_zone,
            parent=(caller.id, task.call_key),
        )
        callers = (*caller.callers, caller.agent_id)
        run = Run(
            id=RunId(self._db.new_id()),
            session_id=session.id,
            tenant=caller.tenant,
            user_id=caller.user_id,
            agent_id=agent.id,
            message_id=MessageId(""),
            turn=1,
            state=RunState.IDLE,
            create_time=self._db.clock(),
            parent=Parent(caller.id, task.call_key, callers, task.limits),
        )
        [message] = self._db.append(run, [Draft(Role.USER, task.text)])
        self._db.runs[run.id] = StoredRun(replace(run, message_id=message.id))
        return self._db.runs[run.id]

    def _answered(self, stored: StoredRun) -> Answered:
        run = stored.run
        said = [each for each in self._db.messages[run.session_id] if each.role is Role.ASSISTANT]
        last = said[-1] if said else None
        answer = None if last is None or last.tool_calls else last
        return Answered(run, answer, len(stored.calls) + run.sub_tool_calls)

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

    def _history(self, run: Run, window: Window) -> list[Message]:
        cleared = self._db.memories.get(run.session_id, Memory()).cleared_turn
        turns = [stored.run.turn for stored in self._db.runs_of(run.session_id)]
        past = [
            each for turn in turns if cleared < turn < run.turn for each in self._said(run, turn)
        ]
        most = window.messages_at_once
        return [*bounded(past[::-1], most=most, max_bytes=MAX_HISTORY_BYTES).items][::-1]
