"""Runs of sub-agents in the hands of real services and processes, over PostgreSQL.

What becomes of other runs is in `test_worker`.
"""

import asyncio
import json
import signal
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from chatmind.agent.v1 import agent_pb2, agent_service_pb2, run_pb2, session_pb2
from google.protobuf.duration_pb2 import Duration

from services.agent.domain.chat import RunContext
from services.agent.domain.models import RunLimits
from services.agent.domain.places import Places
from services.agent.domain.ports import RunJournal
from services.agent.domain.run_models import RunState, StopReason
from services.agent.domain.sub_runs import Answered, Task
from services.common.errors import UnavailableError
from tests.agent.office import Faulty, Office, reply
from tests.agent.running import ALICE, Caller, Keys, Process, RunningAgent, fake_knowledge, running
from tests.agent.scripted_model import SILENCE, Reply, Request, calls, fails, says, scripted_model
from tests.contracts.agent_stores import AT_ONCE, PRIVATE, agent_pool, postgres_stores

USER, ASSISTANT, TOOL, SYSTEM = (
    session_pb2.Message.ROLE_USER,
    session_pb2.Message.ROLE_ASSISTANT,
    session_pb2.Message.ROLE_TOOL,
    session_pb2.Message.ROLE_SYSTEM,
)
FINISHED, CANCELLED = run_pb2.Run.STATE_FINISHED, run_pb2.Run.STATE_CANCELLED


class Cast:
    """What each agent's model says, by the first word of the agent's instructions.

    Attributes:
        asked: the requests of each.
    """

    def __init__(self) -> None:
        self.asked: dict[str, list[Request]] = defaultdict(list)
        self._lines: dict[str, list[Reply]] = {}
        self._news = asyncio.Condition()

    def play(self, name: str, *lines: Reply) -> None:
        self._lines[name] = list(lines)

    def __call__(self, request: Request) -> Reply:
        name = request.json["messages"][0]["content"].split()[0]
        self.asked[name].append(request)
        lines = self._lines[name]
        return lines.pop(0) if lines else fails(400, f"{name} is asked too often")

    async def on_stage(self, *names: str) -> None:
        """Wait until each of these has been asked."""
        async with asyncio.timeout(10):
            while not all(self.asked[name] for name in names):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


def ask(name: str, task: str = "Look it up.", *, call_id: str = "c") -> tuple[str, str, str]:
    return call_id, f"ask_{name}", json.dumps({"task": task})


async def agent(
    alice: Caller, name: str, *callees: agent_pb2.Agent, **fields: Any
) -> agent_pb2.Agent:
    ids = [callee.id for callee in callees]
    told = {"display_name": name, "system_prompt": f"{name} speaking.", "agent_ids": ids}
    return await alice.create_agent(**{**told, **fields})


async def subs(alice: Caller, run: run_pb2.Run) -> list[session_pb2.Session]:
    """The sessions of the sub-agents that a run asked, the first one first."""
    request = agent_service_pb2.ListSessionsRequest(parent_run_id=run.id)
    answer = await alice.call("ListSessions", request)
    return list(reversed(answer.sessions))


async def sub_run(alice: Caller, run: run_pb2.Run) -> run_pb2.Run:
    """The run of the one sub-agent that a run asked."""
    [session] = await subs(alice, run)
    [message, *_] = await alice.messages(session.id)
    return await alice.run(message.run_id)


@pytest.fixture
def cast(service: RunningAgent) -> Cast:
    cast = Cast()
    service.model.otherwise = cast
    return cast


@pytest.fixture
async def small(tmp_path: Path, empty_tables: str) -> AsyncIterator[RunningAgent]:
    """A service with one place, whose tools have no time."""
    settings: dict[str, Any] = {"runs_at_once": 1, "runs_waiting": 0, "tool_seconds": 0.05}
    async with running(tmp_path, empty_tables, **settings) as service:
        yield service


class TestAnswers:
    async def test_the_answer_comes_back_with_what_it_rests_on(
        self, service: RunningAgent, cast: Cast
    ) -> None:
        alice = service.alice
        base_id = service.knowledge.add(ALICE)
        callee = await agent(alice, "Scholar", knowledge_base_ids=[base_id])
        boss = await agent(alice, "Boss", callee, knowledge_base_ids=[base_id])
        search = ("s", "query_knowledge", '{"query": "backups"}')
        cast.play("Scholar", calls(search), says("35 days [1]."))
        cast.play("Boss", calls(search), calls(ask("scholar")), says("It is 35 days [6]."))

        session = await alice.create_session(boss.id)
        run = await alice.ended((await alice.say(session.id, "How long?")).id)
        said = await alice.messages(session.id)

        assert (run.state, run.stop_reason) == (FINISHED, run_pb2.Run.STOP_REASON_END_TURN)
        result = said[4]
        assert (result.role, result.tool_name) == (TOOL, "ask_scholar")
        assert "35 days [6]." in result.text
        assert "[6] handbook.md › Backups (lines 3-3)" in result.text
        assert [each.label for each in result.citations] == ["6"]
        assert [each.label for each in said[5].citations] == ["6"]
        assert (run.usage.input_tokens, run.usage.output_tokens) == (50, 25)
        assert (run.sub_usage.input_tokens, run.sub_usage.output_tokens) == (20, 10)

    async def test_it_has_a_session_that_can_be_looked_at(
        self, service: RunningAgent, cast: Cast
    ) -> None:
        alice = service.alice
        callee = await agent(alice, "Scholar")
        boss = await agent(alice, "Boss", callee)
        cast.play("Scholar", says("35 days."))
        cast.play("Boss", calls(ask("scholar", "How long are backups kept?")), says("35 days."))
        session = await alice.create_session(boss.id)

        run = await alice.ended((await alice.say(session.id)).id)

        [sub] = await subs(alice, run)
        said = await alice.messages(sub.id)
        assert [each.text for each in said] == ["How long are backups kept?", "35 days."]
        assert (sub.parent_run_id, sub.parent_call_key) == (run.id, f"{run.id}:1:c")
        inner = await alice.run(said[0].run_id)
        assert (inner.state, inner.parent_run_id) == (FINISHED, run.id)
        listed = await alice.call("ListSessions", agent_service_pb2.ListSessionsRequest())
        assert [each.id for each in listed.sessions] == [session.id]
        shown = cast.asked["Scholar"][0].json["messages"]
        assert [each["role"] for each in shown] == ["system", "user"]
        assert shown[0]["content"].startswith("Scholar speaking.")
        assert shown[1]["content"] == "How long are backups kept?"

    async def test_several_are_asked_side_by_side(self, service: RunningAgent, cast: Cast) -> None:
        alice, both = service.alice, asyncio.Event()
        callees = [await agent(alice, name) for name in ("One", "Two")]
        boss = await agent(alice, "Boss", *callees)
        for name in ("One", "Two"):
            cast.play(name, says(name).waiting_for(both))
        asked = [ask("one", call_id="a"), ask("two", call_id="b")]
        cast.play("Boss", calls(*asked), says("Both."))
        session = await alice.create_session(boss.id)

        run = await alice.say(session.id)
        await cast.on_stage("One", "Two")
        both.set()
        await alice.ended(run.id)

        results = [each for each in await alice.messages(session.id) if each.role == TOOL]
        assert [each.tool_call_id for each in results] == ["a", "b"]
        assert ["One" in results[0].text, "Two" in results[1].text] == [True, True]

    async def test_why_there_is_no_answer_is_told(self, service: RunningAgent, cast: Cast) -> None:
        alice = service.alice
        boss = await agent(alice, "Boss", await agent(alice, "Scholar"))
        cast.play("Scholar", fails(400, "no"))
        cast.play("Boss", calls(ask("scholar")), says("Nobody knows."))
        session = await alice.create_session(boss.id)

        await alice.ended((await alice.say(session.id)).id)

        result = (await alice.messages(session.id))[2]
        assert result.metadata["error"] == "model_error"
        assert result.text.startswith("Error: the agent 'Scholar' gave no answer (model_error):")


class TestPlaces:
    async def test_callers_leave_room_for_whom_they_ask(self, small: RunningAgent) -> None:
        """Three levels deep, with one place, and more conversations than that at once."""
        alice, cast = small.alice, Cast()
        small.model.otherwise = cast
        last: list[agent_pb2.Agent] = []
        names = ["Boss", "One", "Two", "Three"]
        for name, below in zip(reversed(names), [None, "three", "two", "one"], strict=True):
            last = [await agent(alice, name, *last)]
            lines = [[calls(ask(below))], [says(f"{name} knows.")]] if below else [[says("Yes.")]]
            cast.play(name, *[reply for _ in range(3) for line in lines for reply in line])

        sessions = [await alice.create_session(last[0].id) for _ in range(3)]
        runs = [await alice.say(session.id) for session in sessions]
        ended = [await alice.ended(run.id, within=30) for run in runs]

        assert {run.state for run in ended} == {FINISHED}
        assert len(cast.asked["Three"]) == 3
        assert {run.sub_usage.input_tokens for run in ended} == {50}

    async def test_below_the_third_level_nobody_is_asked(
        self, service: RunningAgent, cast: Cast
    ) -> None:
        alice, last = service.alice, list[agent_pb2.Agent]()
        names = ["Boss", "One", "Two", "Three", "Four"]
        for name in reversed(names):
            last = [await agent(alice, name, *last)]
        for name, below in zip(names, ["one", "two", "three"], strict=False):
            cast.play(name, calls(ask(below)), says("Done."))
        cast.play("Three", says("I am the last."))

        session = await alice.create_session(last[0].id)
        await alice.ended((await alice.say(session.id)).id)

        assert "tools" in cast.asked["Two"][0].json
        assert "tools" not in cast.asked["Three"][0].json

    async def test_a_sub_agent_has_the_time_that_its_caller_has(self, small: RunningAgent) -> None:
        alice, cast, late = small.alice, Cast(), asyncio.Event()
        small.model.otherwise = cast
        boss = await agent(alice, "Boss", await agent(alice, "Scholar"))
        cast.play("Scholar", says("At last.").waiting_for(late))
        cast.play("Boss", calls(ask("scholar")), says("Good."))
        session = await alice.create_session(boss.id)

        run = await alice.say(session.id)
        await cast.on_stage("Scholar")
        asyncio.get_running_loop().call_later(1.0, late.set)
        await alice.ended(run.id)

        assert "At last." in (await alice.messages(session.id))[2].text


class TestLimits:
    async def test_a_caller_out_of_time_ends_it(self, service: RunningAgent, cast: Cast) -> None:
        alice = service.alice
        limits = agent_pb2.RunLimits(max_duration=Duration(seconds=1))
        boss = await agent(alice, "Boss", await agent(alice, "Scholar"), limits=limits)
        cast.play("Scholar", SILENCE)
        cast.play("Boss", calls(ask("scholar")), SILENCE)
        session = await alice.create_session(boss.id)

        run = await alice.ended((await alice.say(session.id)).id)

        assert run.stop_reason == run_pb2.Run.STOP_REASON_MAX_DURATION
        inner = await sub_run(alice, run)
        assert inner.stop_reason == run_pb2.Run.STOP_REASON_MAX_DURATION
        spent = inner.end_time.ToDatetime() - inner.start_time.ToDatetime()
        assert spent < timedelta(seconds=1)
        assert (await alice.messages(session.id))[2].metadata["error"] == "max_duration"

    async def test_it_shares_the_tokens_and_calls_of_its_caller(
        self, service: RunningAgent, cast: Cast
    ) -> None:
        alice = service.alice
        limits = agent_pb2.RunLimits(max_tokens=20_000, max_tool_calls=5)
        callee = await agent(alice, "Scholar", tools=["current_time"])
        boss = await agent(alice, "Boss", callee, tools=["current_time"], limits=limits)
        times = [
            (f"t{n}", "current_time", json.dumps({"timezone": zone}))
            for n, zone in enumerate(("UTC", "Asia/Shanghai", "Europe/Berlin"))
        ]
        cast.play("Scholar", calls(*times, usage=(9_000, 100)), says("It is late."))
        cast.play("Boss", calls(ask("scholar")), calls(*times), says("Late."))
        session = await alice.create_session(boss.id)

        run = await alice.ended((await alice.say(session.id)).id)

        [sub] = await subs(alice, run)
        inner = [each.text for each in await alice.messages(sub.id) if each.role == TOOL]
        assert ["limit of 2 tool calls" in text for text in inner] == [False, False, True]
        outer = [each.text for each in await alice.messages(session.id) if each.role == TOOL][1:]
        assert ["limit of 5 tool calls" in text for text in outer] == [False, True, True]
        asked = cast.asked["Scholar"][1].json
        bound: int = asked.get("max_tokens") or asked["max_completion_tokens"]
        assert 0 < bound < 1_000
        assert run.stop_reason == run_pb2.Run.STOP_REASON_MAX_TOOL_CALLS


class TestStops:
    @pytest.fixture
    async def waiting(self, service: RunningAgent, cast: Cast) -> run_pb2.Run:
        """A run whose sub-agent's sub-agent has asked a model that does not answer."""
        alice = service.alice
        scholar = await agent(alice, "Scholar", await agent(alice, "Clerk"))
        boss = await agent(alice, "Boss", scholar)
        cast.play("Clerk", SILENCE)
        cast.play("Scholar", calls(ask("clerk")))
        cast.play("Boss", calls(ask("scholar")), says("Well then."))
        session = await alice.create_session(boss.id)
        run = await alice.say(session.id)
        await cast.on_stage("Clerk")
        return run

    async def check_stopped(
        self, service: RunningAgent, run: run_pb2.Run, reason: run_pb2.Run.StopReason.ValueType
    ) -> None:
        """Within a second, on every level, with one result for each call."""
        begun = time.monotonic()
        alice = service.alice
        await service.model.abandoned(within=1)
        while run.id:
            ended = await alice.ended(run.id)
            assert (ended.state, ended.stop_reason) == (CANCELLED, reason)
            said = await alice.messages(run.session_id)
            asked = [call.id for message in said for call in message.tool_calls]
            assert asked == [each.tool_call_id for each in said if each.role == TOOL]
            run = await sub_run(alice, run) if asked else run_pb2.Run()
        assert time.monotonic() - begun < 1

    async def test_a_cancel_stops_all_of_them(
        self, service: RunningAgent, waiting: run_pb2.Run
    ) -> None:
        await service.alice.cancel(waiting.id)

        await self.check_stopped(service, waiting, run_pb2.Run.STOP_REASON_CANCELLED)

    @pytest.mark.parametrize("when_busy", [run_pb2.WHEN_BUSY_INTERRUPT, run_pb2.WHEN_BUSY_ROLLBACK])
    async def test_so_does_a_message_that_comes_first(
        self,
        service: RunningAgent,
        waiting: run_pb2.Run,
        when_busy: run_pb2.WhenBusy.ValueType,
    ) -> None:
        await service.alice.say(waiting.session_id, "Stop", when_busy=when_busy)

        await self.check_stopped(service, waiting, run_pb2.Run.STOP_REASON_INTERRUPTED)

    async def test_so_does_the_end_of_the_callers_agent(
        self, service: RunningAgent, waiting: run_pb2.Run
    ) -> None:
        alice = service.alice
        request = agent_service_pb2.DeleteAgentRequest(agent_id=waiting.agent_id)
        await alice.call("DeleteAgent", request)

        await service.model.abandoned(within=1)
        ended = await alice.ended(waiting.id)
        assert ended.stop_reason == run_pb2.Run.STOP_REASON_AGENT_DELETED
        assert (await alice.ended((await sub_run(alice, waiting)).id)).state == CANCELLED

    async def test_the_end_of_its_own_agent_is_told_to_the_caller(
        self, service: RunningAgent, waiting: run_pb2.Run
    ) -> None:
        alice = service.alice
        inner = await sub_run(alice, waiting)
        request = agent_service_pb2.DeleteAgentRequest(agent_id=inner.agent_id)
        await alice.call("DeleteAgent", request)

        assert (await alice.ended(waiting.id)).state == FINISHED
        result = (await alice.messages(waiting.session_id))[2]
        assert result.metadata["error"] == "agent_deleted"

    async def test_one_can_be_stopped_alone(
        self, service: RunningAgent, waiting: run_pb2.Run
    ) -> None:
        alice = service.alice
        await alice.cancel((await sub_run(alice, waiting)).id)

        assert (await alice.ended(waiting.id)).state == FINISHED
        assert (await alice.messages(waiting.session_id))[2].metadata["error"] == "cancelled"

    async def test_a_session_that_is_deleted_takes_all_with_it(
        self, service: RunningAgent, waiting: run_pb2.Run
    ) -> None:
        alice = service.alice
        request = agent_service_pb2.DeleteSessionRequest(session_id=waiting.session_id)

        gone = await alice.call("DeleteSession", request)

        assert gone.runs == 3
        await service.model.abandoned(within=2)


class Asking:
    """A loop whose agent asks another one; that one answers, after faults of its own.

    Attributes:
        task: what is asked.
        faults: what befalls the other one, one at each attempt.
        answered: what came of it.
    """

    def __init__(self, task: Task, *faults: Exception) -> None:
        self.task = task
        self.faults = list(faults)
        self.answered: list[Answered] = []

    async def __call__(self, context: RunContext, journal: RunJournal) -> None:
        if context.run.parent is None:
            assert context.ask is not None
            self.answered.append(await context.ask(self.task))
        elif self.faults:
            raise self.faults.pop()
        await reply(context, journal)


class TestFaults:
    """With loops that the tests write."""

    @pytest.fixture
    async def office(self, empty_tables: str) -> AsyncIterator[Office]:
        async with agent_pool(empty_tables) as pool:
            office = Office(postgres_stores(pool), pool)
            try:
                yield office
            finally:
                await office.close()

    @pytest.fixture
    async def asking(self, office: Office) -> Asking:
        callee = await office.stores.agents.create(ALICE, PRIVATE)
        return Asking(Task(callee.id, "Well?", "k", RunLimits()))

    async def test_one_that_takes_its_workers_down_is_given_up_and_its_caller_goes_on(
        self, office: Office, asking: Asking
    ) -> None:
        run = await office.say()
        lost = await office.stores.claimed(lease=AT_ONCE)
        for _ in range(3):
            await office.stores.queue.ask(lost, asking.task, lease=AT_ONCE)

        await office.employ(asking)

        assert (await office.ended(run)).state is RunState.FINISHED
        [answered] = asking.answered
        assert answered.run.stop_reason is StopReason.CRASH_LOOP

    async def test_a_database_that_is_away_costs_no_answer(
        self, office: Office, asking: Asking
    ) -> None:
        queue = Faulty(office.stores.queue)
        queue.down.add("ask")
        await office.employ(asking, queue=queue)
        run = await office.say()
        await queue.asked["ask"].wait()
        queue.down.clear()

        assert (await office.ended(run)).state is RunState.FINISHED
        assert await office.crashes(run) == 0
        assert len(asking.answered) == 1

    async def test_one_that_is_interrupted_by_the_database_is_gone_on_with(
        self, office: Office, asking: Asking
    ) -> None:
        asking.faults.append(UnavailableError("The database cannot be reached."))
        await office.employ(asking)

        run = await office.ended(await office.say())

        [answered] = asking.answered
        assert (run.state, answered.run.state) == (RunState.FINISHED, RunState.FINISHED)
        assert answered.answer is not None
        assert answered.answer.text == "To Well?"

    async def test_a_fault_of_its_own_ends_it_alone(self, office: Office, asking: Asking) -> None:
        asking.faults.append(ZeroDivisionError())
        await office.employ(asking)

        run = await office.ended(await office.say())

        [answered] = asking.answered
        assert (run.state, answered.run.stop_reason) == (RunState.FINISHED, StopReason.INTERNAL)

    async def test_those_that_are_asked_at_once_lend_one_place(
        self, office: Office, asking: Asking
    ) -> None:
        places, all_wait, back = Places(1, most_lent=9), asyncio.Event(), asyncio.Event()
        waiting = list[str]()

        async def turns(context: RunContext, journal: RunJournal) -> None:
            if context.run.parent is None and context.ask is not None:
                tasks = [replace(asking.task, call_key=key) for key in "abc"]
                await asyncio.gather(*map(context.ask, tasks))
            else:
                with places.lent() as loan:
                    waiting.append(context.run.id)
                    if len(waiting) == 3:
                        all_wait.set()
                    await back.wait()
                    await loan.regain()
            await reply(context, journal)

        await office.employ(turns, places=places)
        run = await office.say()
        await asyncio.wait_for(all_wait.wait(), 10)
        lent = places.free
        back.set()
        await office.ended(run)

        assert lent == 1

    async def test_an_agent_that_is_gone_is_not_asked(self, office: Office, asking: Asking) -> None:
        await office.stores.agents.delete(ALICE, asking.task.agent_id)
        await office.employ(asking)

        run = await office.ended(await office.say())

        assert run.stop_reason is StopReason.AGENT_DELETED
        assert asking.answered == []


class TestProcesses:
    async def test_a_killed_workers_sub_agents_are_gone_on_with(
        self, empty_tables: str, tmp_path: Path
    ) -> None:
        """One that is at work is continued; of one that has ended, the answer is taken."""
        cast, keys = Cast(), Keys(tmp_path / "identity")
        async with AsyncExitStack() as stack:
            knowledge = await stack.enter_async_context(fake_knowledge(keys))
            model = await stack.enter_async_context(scripted_model())
            model.otherwise = cast
            told = {
                "CHATMIND_AGENT_KNOWLEDGE_ADDRESS": f"127.0.0.1:{knowledge.port}",
                "CHATMIND_AGENT_LEASE_SECONDS": "1",
                "OPENAI_BASE_URL": model.base_url,
                "OPENAI_MODEL": "scripted",
            }
            api, worker, next_worker = (
                Process(empty_tables, keys, CHATMIND_AGENT_ROLE=role, **told)
                for role in ("api", "worker", "worker")
            )
            channel = await stack.enter_async_context(api.started())
            alice = keys.caller(channel, ALICE)
            callees = [
                await agent(alice, "Slow", tools=["current_time"]),
                await agent(alice, "Quick"),
            ]
            boss = await agent(alice, "Boss", *callees)
            session = await alice.create_session(boss.id)
            cast.play("Slow", calls(("t", "current_time", "{}")), SILENCE, says("Slow is done."))
            cast.play("Quick", says("Quick is done."))
            asked = [ask("slow", call_id="a"), ask("quick", call_id="b")]
            cast.play("Boss", calls(*asked), says("Both are done."))

            await stack.enter_async_context(worker.started())
            run = await alice.say(session.id)
            await cast.on_stage("Slow", "Quick")
            of_agent = {each.agent_id: each for each in await subs(alice, run)}
            slow, quick = (of_agent[callee.id] for callee in callees)
            [question, *_] = await alice.messages(quick.id)
            await alice.ended(question.run_id)
            await model.asked(4)
            await worker.end(signal.SIGKILL)
            await stack.enter_async_context(next_worker.started())
            ended = await alice.ended(run.id)

            assert ended.state == FINISHED
            assert {each.id for each in await subs(alice, run)} == {slow.id, quick.id}
            assert [len(cast.asked[name]) for name in ("Slow", "Quick", "Boss")] == [3, 1, 2]
            said = await alice.messages(session.id)
            assert [each.role for each in said] == [USER, ASSISTANT, TOOL, TOOL, ASSISTANT]
            assert ["Slow is done" in said[2].text, "Quick is done" in said[3].text] == [True, True]
            inner = await alice.messages(slow.id)
            assert [each.role for each in inner] == [USER, ASSISTANT, TOOL, ASSISTANT]

    async def test_a_worker_that_leaves_hands_them_on(
        self, empty_tables: str, tmp_path: Path
    ) -> None:
        """Long before their leases lapse, and no worker counts as lost."""
        cast, keys = Cast(), Keys(tmp_path / "identity")
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(AsyncExitStack())
            leaving = await first.enter_async_context(
                running(tmp_path, empty_tables, keys=keys, lease_seconds=60)
            )
            leaving.model.otherwise = cast
            alice = leaving.alice
            boss = await agent(alice, "Boss", await agent(alice, "Scholar"))
            session = await alice.create_session(boss.id)
            cast.play("Scholar", SILENCE, says("At last."))
            cast.play("Boss", calls(ask("scholar")), says("Good."))
            run = await alice.say(session.id)
            await cast.on_stage("Scholar")
            inner = await sub_run(alice, run)
            await leaving.stop()

            staying = await stack.enter_async_context(
                running(tmp_path, empty_tables, keys=keys, lease_seconds=60)
            )
            staying.model.otherwise = cast
            ended = await staying.alice.ended(run.id, within=5)

            assert ended.state == FINISHED
            assert (await sub_run(staying.alice, run)).id == inner.id
            assert len(cast.asked["Boss"]) == 2
