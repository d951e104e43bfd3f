"""The think-execute loop: drives `domain.turn.engine` with a model, tools and a journal.

PLANNING assembles what the run works with. THINKING asks the model, after older turns were
summarised where they no longer fit. A reply that asks for tools is
committed before any of them runs. EXECUTING runs them side by side and commits one result per call,
in the order of the calls, each as soon as those before it are. Then the model is asked again, or
the run ends. Where a call needs a person's approval, those before it are made, and then the run is
given up until there is an answer, or the time for one is over. So a step costs two commits, and a
third where a tool must not run twice. Whoever takes up a run whose worker was lost goes on behind
the last committed message.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final, assert_never

from services.agent.domain.chat import Ending, ModelReply, RunContext, ToolContext, ToolResult
from services.agent.domain.drafts import kept_size
from services.agent.domain.endings import notice
from services.agent.domain.errors import (
    ContextTooLongError,
    EmptyAnswerError,
    ModelRejectedError,
    ModelUnavailableError,
)
from services.agent.domain.hooks.around import Turned
from services.agent.domain.ledger import idempotency_key, position_of
from services.agent.domain.memory.store import MemoryStore
from services.agent.domain.messages import Draft, Message, ToolCall
from services.agent.domain.models import RunLimits, ToolCallId
from services.agent.domain.ports import RunJournal
from services.agent.domain.run_models import Offered, RunError, RunState, StopReason, Usage
from services.agent.domain.tools.execute import ToolBounds, execute
from services.agent.domain.tools.query_knowledge import QUERY_KNOWLEDGE
from services.agent.domain.tools.read_more import READ_MORE
from services.agent.domain.turn import engine, replies
from services.agent.domain.turn.calls import TOOLS_AT_ONCE, Answered, execute_in_order
from services.agent.domain.turn.citations import first_label
from services.agent.domain.turn.gate import Gate, offers_of_others, taints
from services.agent.domain.turn.plan import Plan, Plans, not_to_be_had
from services.agent.domain.turn.recall import Recall
from services.agent.domain.turn.repeats import keys_of
from services.agent.domain.turn.steps import (
    Ask,
    Condensed,
    Event,
    Executed,
    Failed,
    Finish,
    OutOf,
    PlannedCall,
    Replied,
    RunTools,
    Wait,
    as_committed,
    before_waiting,
)
from services.common.clock import Clock
from services.common.errors import InvalidArgumentError
from services.common.tasks import BackgroundTasks, background_tasks

_AGENT_SHARE: Final = 0.9


@dataclass(frozen=True, slots=True)
class Loop:
    """Works on runs, one call of `run` for each.

    Attributes:
        planner: assembles what a run works with.
        clock: tells how time passes; it may be wrong, as others are.
        memories: what is remembered of sessions.
        bounds: what a tool call may take.
        approval_time: for how long a person can be waited for.
    """

    planner: Plans
    clock: Clock
    memories: MemoryStore
    bounds: ToolBounds = field(default_factory=ToolBounds)
    approval_time: timedelta = timedelta(minutes=10)

    async def run(self, context: RunContext, journal: RunJournal) -> Ending | None:
        """Work on a run from wherever it stands, to its end or until a person has to be asked.

        Returns:
            how it ended; None where it waits for a person.

        Raises:
            FencedError: the run is no longer this worker's.
        """
        try:
            plan = await self.planner.plan(context)
        except InvalidArgumentError as error:
            ending = not_to_be_had(error)
            await journal.finish(ending, [notice(error.message)])
            return ending
        async with background_tasks() as tools:
            return await _Turn(self, plan, context=context, journal=journal, tools=tools).drive()


class _Turn:
    """One run on its way."""

    def __init__(
        self,
        loop: Loop,
        plan: Plan,
        *,
        context: RunContext,
        journal: RunJournal,
        tools: BackgroundTasks,
    ) -> None:
        self._loop = loop
        self._plan = plan
        self._context = context
        self._journal = journal
        self._tools = tools
        self._limits = context.run.bounds(context.agent.settings.limits)
        self._messages: list[Message] = list(context.turn)
        self._offered: Offered | None = plan.offered
        self._deadline = loop.clock() + self._limits.duration - context.elapsed
        self._thinking = False
        self._left = RunLimits()
        self._around = plan.hooks.around(context, plan.model, messages=self._messages, tasks=tools)
        self._recall = Recall(
            plan, context, around=self._around, journal=journal, memories=loop.memories
        )

    async def drive(self) -> Ending | None:
        progress, step = engine.begin(
            self._context.run,
            self._messages,
            limits=self._limits,
            unrepeatable=self._unrepeatable(),
            key=keys_of({name: tool.spec for name, tool in self._plan.tools.items()}),
        )
        while isinstance(step, Ask | RunTools):
            progress, step = engine.advance(progress, await self._act(step, progress))
        if isinstance(step, Wait):
            await self._journal.park(step.questions, within=self._loop.approval_time)
            return None
        step = await self._around.finish(step)
        await self._finish(step)
        return step.ending

    async def _act(self, step: Ask | RunTools, progress: engine.Progress) -> Event:
        if self._seconds_left() <= 0:
            return OutOf(StopReason.MAX_DURATION)
        match step:
            case Ask(closing):
                return await self._ask(progress, closing=closing)
            case RunTools():
                self._left = progress.share(self._asking(step.calls) + 1)
                return await self._run_tools(step)
            case _:
                assert_never(step)

    async def _ask(self, progress: engine.Progress, *, closing: bool) -> Event:
        prepared = await self._recall.prepare(self._messages, closing=closing)
        if not progress.affords(prepared.tokens):
            return OutOf(StopReason.MAX_TOKENS)
        left = progress.tokens_left(prepared.tokens)
        if self._recall.crowded(prepared, self._messages):
            return await self._recall.condense(prepared, left, seconds=self._seconds_left() / 2)
        await self._think()
        try:
            async with asyncio.timeout(self._seconds_left()) as limit:
                reply = await self._around.ask(self._plan.model, prepared.bounded(left))
        except TimeoutError:
            if not limit.expired():
                raise
            return OutOf(StopReason.MAX_DURATION)
        except Turned as turned:
            return turned.event
        except EmptyAnswerError:
            reply = ModelReply("")
        except ContextTooLongError as error:
            if self._recall.shrink(prepared, self._messages, error, closing=closing):
                return Condensed()
            return Failed(RunError(error.reason, error.message))
        except (ModelUnavailableError, ModelRejectedError) as error:
            return Failed(RunError(error.reason, error.message))
        self._recall.learn(prepared, reply)
        return Replied(reply, prepared.usage(reply))

    async def _run_tools(self, step: RunTools) -> Event:
        gate, before = self._gate(step), len(self._messages)
        calls = gate.judged(step.calls)
        self._thinking = False
        if step.reply is not None:
            draft = replies.asking(step.reply, model=self._plan.offered.model, tainted=gate.tainted)
            message = await self._journal.append_assistant(
                draft, usage=step.usage, starting=self._repeatable(before_waiting(calls))
            )
            self._messages.append(message)
            calls = gate.judged(as_committed(step.calls, message.tool_calls))
        else:
            again = [calls[place].call.id for place in self._repeatable(before_waiting(calls))]
            if again:
                await self._journal.start_tool_calls(again)
        ready = before_waiting(calls)
        waiting = calls[len(ready) :]
        given = await self._answer(ready, gate, then=None if waiting else RunState.THINKING)
        return Executed(
            recorded=step.reply is not None,
            stored=sum(kept_size(message) for message in self._messages[before:]),
            usage=sum((result.usage for result in given), Usage()),
            tool_calls=sum(result.tool_calls for result in given),
            questions=tuple(each.question for each in waiting if each.question is not None),
        )

    def _gate(self, step: RunTools) -> Gate:
        """What decides over these calls, by what their model was shown when it asked for them."""
        said: Sequence[Message] = self._messages
        if step.reply is None:
            asking = (place for place, each in enumerate(said) if each.tool_calls)
            # With the message that asks: it tells what an earlier worker had its model shown.
            said = said[: max(asking) + 1]
        return Gate(
            self._plan.tools,
            self._context.agent.settings.approvals,
            tainted=self._tainted(said),
            # Nobody was asked about a new reply yet, whatever ids its calls have.
            approvals={} if step.reply else self._context.approvals,
            attended=self._context.run.parent is None,
        )

    def _tainted(self, said: Sequence[Message]) -> bool:
        """Whether the model was shown what others wrote, with these messages of the run.

        What a sub-agent is asked was written by another model, whatever that was shown.
        """
        tools = self._plan.tools
        return (
            self._context.run.parent is not None
            or self._recall.summarised_through is not None
            or offers_of_others(tools)
            or taints((*self._recall.history, *said), tools)
        )

    def _repeatable(self, calls: Sequence[PlannedCall]) -> list[int]:
        """Places of the calls that do no harm if they are noted as begun too early."""
        return [
            place
            for place, each in enumerate(calls)
            if each.answer is None
            and each.call.name in self._plan.tools
            and not self._once(each.call)
        ]

    def _asking(self, calls: Sequence[PlannedCall]) -> int:
        """How many of these calls ask another agent."""
        tools = [self._plan.tools.get(each.call.name) for each in calls if each.answer is None]
        return sum(tool is not None and tool.spec.asks_agent for tool in tools)

    def _once(self, call: ToolCall) -> bool:
        """Whether a call must not be begun a second time."""
        tool = self._plan.tools.get(call.name)
        return tool is not None and not tool.spec.idempotent

    async def _announce(self, calls: Sequence[PlannedCall]) -> frozenset[ToolCallId]:
        """Note the first of those that must not be begun a second time; gives their ids."""
        once = [each.call.id for each in calls if each.answer is None and self._once(each.call)]
        first = once[:TOOLS_AT_ONCE]
        if first:
            await self._journal.start_tool_calls(first)
        return frozenset(first)

    async def _answer(
        self, calls: Sequence[PlannedCall], gate: Gate, *, then: RunState | None
    ) -> Sequence[ToolResult]:
        """Give each call its one result, committed in the order of the calls; gives them all.

        Args:
            calls: all of a reply, or those before the first that waits for a person.
            gate: what has decided over them.
            then: where the run stands after the last result, if it moves on.
        """
        announced = await self._announce(calls)

        async def execute_released(asked: ToolCall) -> ToolResult:
            released = gate.released(asked)
            return released.answer or await self._execute(released.call)

        async def execute_one(planned: PlannedCall) -> ToolResult:
            call = planned.call
            if planned.answer is None and self._once(call) and call.id not in announced:
                await self._journal.start_tool_calls([call.id])
            return planned.answer or await self._around.execute(call, execute_released)

        async def record(given: Sequence[Answered], last: bool) -> None:
            drafts = [replies.result(call, result) for call, result in given]
            await self._record(drafts, then=then if last else None)

        return await execute_in_order(calls, execute_one, record)

    async def _record(self, results: Sequence[Draft], *, then: RunState | None) -> None:
        self._messages += await self._journal.append_tool_results(results, then=then)
        self._thinking = then is RunState.THINKING

    async def _think(self) -> None:
        """Tell that the model is asked, where the last results have not told so already."""
        if self._offered is not None or not self._thinking:
            await self._journal.set_state(RunState.THINKING, offered=self._offered)
            self._offered, self._thinking = None, True

    async def _execute(self, call: ToolCall) -> ToolResult:
        bounds, tool = self._loop.bounds, self._plan.tools.get(call.name)
        seconds = max(self._seconds_left(), 0)
        if tool is None or not tool.spec.asks_agent:
            seconds = min(bounds.seconds, seconds)
        return await execute(
            call,
            self._plan.tools,
            self._tool_context(call),
            bounds=replace(bounds, seconds=seconds),
            tasks=self._tools,
            result_id=self._position(call) if READ_MORE in self._plan.tools else "",
        )

    def _tool_context(self, call: ToolCall) -> ToolContext:
        context = self._context
        return ToolContext(
            identity=context.identity,
            agent=context.agent,
            session_id=context.run.session_id,
            run_id=context.run.id,
            call_key=idempotency_key(context.run.id, self._newest.step, call.id),
            next_label=first_label(
                (each for message in self._messages for each in message.tool_calls),
                call.id,
                tool_name=QUERY_KNOWLEDGE,
                block=context.agent.settings.retrieval.passages,
            ),
            time_zone=context.time_zone,
            ask=context.ask,
            left=replace(self._left, max_duration=self._time_for_agent()),
        )

    def _time_for_agent(self) -> timedelta:
        """How long another agent may take, so that it can say itself that its time is over."""
        return timedelta(seconds=max(self._seconds_left() * _AGENT_SHARE, 0))

    async def _finish(self, step: Finish) -> None:
        await self._journal.finish(
            step.ending, [self._last_words(step)], usage=step.usage, steps=step.steps
        )

    def _last_words(self, step: Finish) -> Draft:
        if step.reply is None:
            return replies.instead_of_answer(step.notice, step.ending)
        return replies.answer(
            step.reply,
            model=self._plan.offered.model,
            retrieved=[each for message in self._messages for each in message.citations],
            summarised_through=self._recall.summarised_through,
            tainted=self._tainted(self._messages),
        )

    def _unrepeatable(self) -> frozenset[ToolCallId]:
        """Calls that an earlier worker began and that must not be begun again."""
        begun = self._context.started_calls
        calls = [call for message in self._messages for call in message.tool_calls]
        return frozenset(
            call.id
            for call in calls
            if call.id in begun and (call.name not in self._plan.tools or self._once(call))
        )

    @property
    def _newest(self) -> Message:
        """The message with the newest calls."""
        return next(each for each in reversed(self._messages) if each.tool_calls)

    def _position(self, call: ToolCall) -> str:
        """Where one of the newest calls stands in the run."""
        newest = self._newest
        return position_of(newest.step, [each.id for each in newest.tool_calls].index(call.id))

    def _seconds_left(self) -> float:
        return (self._deadline - self._loop.clock()).total_seconds()
