"""Runs are worked on by the real loop over stores in memory, then driven anew."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from services.agent.domain.chat import FinishReason, ModelReply, ToolResult
from services.agent.domain.endings import CANCELLED, CRASH_LOOP
from services.agent.domain.errors import (
    AgentDeletedError,
    ContextTooLongError,
    EmptyAnswerError,
    ModelRejectedError,
    ModelUnavailableError,
    RunNotEndedError,
)
from services.agent.domain.hooks.hook import CallTools, End
from services.agent.domain.hooks.registry import Hooks
from services.agent.domain.messages import Draft, Role
from services.agent.domain.models import AgentSettings, HookSetting, RunLimits
from services.agent.domain.ports import Tool
from services.agent.domain.queue import Claim
from services.agent.domain.replay.replays import Replays
from services.agent.domain.run_models import Run, StopReason, Usage
from services.agent.domain.sub_runs import Task
from services.agent.domain.tools.registry import Tools
from services.agent.domain.tools.sources import KnowledgeTools, RegisteredTools, ToolSource
from services.agent.domain.turn.loop import Loop
from services.agent.domain.turn.plan import Planner
from services.agent.store.memory.scratch import MemoryScratch
from services.common.clock import now
from services.common.errors import NotFoundError
from tests.agent.domain.hooks.scripted import Act, Log, scripted_hook
from tests.agent.turns import (
    Answer,
    Models,
    PlainTool,
    ScriptedModel,
    Shelf,
    call,
    calls,
    says,
)
from tests.contracts.agent_stores import ALICE, BOB, LEASE, Stores, memory_stores

SETTINGS = AgentSettings("Agent", tools=("look", "dig"))


class Office:
    """Stores in memory, and a loop over them whose model and tools can be exchanged."""

    def __init__(self) -> None:
        self.stores: Stores = memory_stores()
        self.tools: list[Tool] = [PlainTool(), PlainTool("dig", idempotent=False)]
        self.shelf = Shelf()
        self.model = ScriptedModel()
        self.hooks = Hooks()

    @property
    def loop(self) -> Loop:
        sources: list[ToolSource] = [RegisteredTools(Tools(self.tools)), KnowledgeTools(self.shelf)]
        planner = Planner(Models(self.model), sources, self.hooks)
        return Loop(planner, clock=now, memories=self.stores.memories)

    @property
    def replays(self) -> Replays:
        stores = self.stores
        return Replays(stores.recordings, stores.agents, self.loop, MemoryScratch)

    async def run(self, *script: Answer, settings: AgentSettings = SETTINGS) -> Run:
        """A run that has been worked on to its end, with nothing left for the model to say."""
        session = await self.stores.session(settings=settings)
        return await self.say(session.id, *script)

    async def say(self, session_id: object, *script: Answer) -> Run:
        run, _ = await self.stores.runs.start(ALICE, session_id, "Where is it?")  # type: ignore[arg-type]
        self.model = ScriptedModel(*script)
        claim = await self.stores.claimed()
        context = await self.stores.queue.context(claim)
        await self.loop.run(context, self.stores.queue.journal(claim))
        self.model = ScriptedModel()
        return await self.stores.runs.get(ALICE, run.id)


@pytest.fixture
def office() -> Office:
    return Office()


LOOKS = calls(call("c1"), call("c2", "dig"), text="I will look.")
SCRIPTS: dict[str, tuple[Sequence[Answer], StopReason]] = {
    "an answer": ([says("There.")], StopReason.END_TURN),
    "tools": ([LOOKS, calls(call("c1", arguments="[]")), says("There.")], StopReason.END_TURN),
    "an unknown tool": ([calls(call("c1", "nope")), says("No.")], StopReason.END_TURN),
    "an empty reply": ([says(""), says("There.")], StopReason.END_TURN),
    "no answer": ([says(""), EmptyAnswerError("x")], StopReason.MODEL_ERROR),
    "a model that is down": ([LOOKS, ModelUnavailableError("Down.")], StopReason.MODEL_ERROR),
    "a refusal": ([ModelRejectedError("Refused.")], StopReason.MODEL_ERROR),
    "a reply that was cut": (
        [ModelReply("There", finish_reason=FinishReason.LENGTH)],
        StopReason.MAX_TOKENS,
    ),
    "a reply cut to nothing": (
        [ModelReply("", finish_reason=FinishReason.LENGTH)],
        StopReason.MAX_TOKENS,
    ),
    "the same call": (
        [*(calls(call(f"c{number}")) for number in range(5)), says("Stuck.")],
        StopReason.REPEATED_CALL,
    ),
    "an answer to the closing question": (
        [calls(call("c1")), calls(call("c2", "dig")), says("Not found.")],
        StopReason.MAX_STEPS,
    ),
    "no answer to the closing question": (
        [calls(call("c1")), calls(call("c2", "dig")), says("")],
        StopReason.MAX_STEPS,
    ),
}


class TestIdentical:
    @pytest.mark.parametrize("name", SCRIPTS)
    async def test_what_was_said_comes_out_again(self, office: Office, name: str) -> None:
        script, reason = SCRIPTS[name]
        most = 2 if reason is StopReason.MAX_STEPS else None
        run = await office.run(*script, settings=replace(SETTINGS, limits=RunLimits(most)))

        replay = await office.replays.replay(ALICE, run.id)

        assert run.stop_reason is reason
        assert (None, reason) == (replay.difference, replay.end)
        said = await office.stores.said(run)
        assert replay.compared_messages == len(said) - 1

    async def test_what_was_forgotten_before_takes_no_tokens(self, office: Office) -> None:
        settings = replace(SETTINGS, limits=RunLimits(max_tokens=1000))
        session = await office.stores.session(settings=settings)
        await office.say(session.id, says("far away " * 500))
        await office.stores.memories.clear(ALICE, session.id)
        run = await office.say(session.id, says("There."))

        replay = await office.replays.replay(ALICE, run.id)

        assert (run.stop_reason, replay.difference) == (StopReason.END_TURN, None)

    async def test_questions_that_were_cut_for_the_model_take_no_more_tokens(
        self, office: Office
    ) -> None:
        settings = replace(SETTINGS, limits=RunLimits(max_tokens=3000))
        session = await office.stores.session(settings=settings)
        await office.say(session.id, says("far away " * 1000))
        refused = ContextTooLongError.of("Too long.", 1000)
        uncounted = replace(calls(call("c1")), usage=None)
        run = await office.say(session.id, refused, uncounted, says("There."))

        replay = await office.replays.replay(ALICE, run.id)

        assert (run.stop_reason, replay.difference) == (StopReason.END_TURN, None)

    async def test_what_sub_agents_used_counts_again(self, office: Office) -> None:
        used = ToolResult("found", usage=Usage(900, 90), tool_calls=3)
        office.tools[0] = PlainTool(gives=lambda _: used)
        settings = replace(SETTINGS, limits=RunLimits(max_tokens=1000))
        run = await office.run(calls(call("c1")), settings=settings)

        replay = await office.replays.replay(ALICE, run.id)

        assert run.stop_reason is StopReason.MAX_TOKENS
        assert (replay.difference, replay.end) == (None, StopReason.MAX_TOKENS)

    async def test_what_a_caller_had_left_bounds_a_sub_agent_again(self, office: Office) -> None:
        await office.stores.started()
        caller = await office.stores.claimed()
        callee = await office.stores.agents.create(ALICE, SETTINGS)
        task = Task(callee.id, "Where is it?", "k", RunLimits(max_tool_calls=1))
        claim = await office.stores.queue.ask(caller, task, lease=LEASE)
        assert isinstance(claim, Claim)
        office.model = ScriptedModel(LOOKS, says("There."))
        context = await office.stores.queue.context(claim)
        await office.loop.run(context, office.stores.queue.journal(claim))
        office.model = ScriptedModel()

        replay = await office.replays.replay(ALICE, claim.run.id)

        assert (replay.difference, replay.end) == (None, StopReason.MAX_TOOL_CALLS)

    async def test_nothing_is_called_and_nothing_stored(self, office: Office) -> None:
        run = await office.run(LOOKS, says("There."))
        before = await office.stores.said(run)
        tool = PlainTool()
        office.tools[0] = tool

        await office.replays.replay(ALICE, run.id)

        assert (tool.ran, office.model.requests) == ([], [])
        assert await office.stores.said(run) == before
        assert await office.stores.runs.get(ALICE, run.id) == run

    async def test_passages_are_cited_again(self, office: Office) -> None:
        office.shelf.add("b1", "Handbook", "backup on b1")
        settings = replace(SETTINGS, knowledge_base_ids=tuple(office.shelf.bases_))  # type: ignore[arg-type]
        search = call("c1", "query_knowledge", '{"query": "backup"}')
        run = await office.run(calls(search), says("On b1 [1]."), settings=settings)
        office.shelf.passages.clear()

        replay = await office.replays.replay(ALICE, run.id)

        assert replay.difference is None

    async def test_a_run_that_was_retried_is_one_story(self, office: Office) -> None:
        limits = RunLimits(max_steps=2)
        failing: list[Answer] = [calls(call("c1")), ModelUnavailableError("Down.")]
        run = await office.run(*failing, settings=replace(SETTINGS, limits=limits))
        await office.stores.runs.retry(ALICE, run.id)
        office.model = ScriptedModel(calls(call("c2", "dig")), says("There."))
        claim = await office.stores.claimed()
        context = await office.stores.queue.context(claim)
        await office.loop.run(context, office.stores.queue.journal(claim))

        replay = await office.replays.replay(ALICE, run.id)

        assert (replay.difference, replay.end) == (None, StopReason.END_TURN)
        assert replay.compared_messages == 5


class TestEndsFromOutside:
    async def test_a_cancelled_run_is_compared_up_to_there(self, office: Office) -> None:
        run = await office.stores.started()
        claim = await office.stores.claimed()
        await office.stores.queue.context(claim)
        journal = office.stores.queue.journal(claim)
        asked = Draft(Role.ASSISTANT, "", tool_calls=(call("c1", "look"), call("c2", "look")))
        await journal.append_assistant(asked, usage=run.usage)
        known = {"error": "unknown_tool"}
        text = "Error: there is no tool 'look'; there are: none."
        first = Draft(Role.TOOL, text, tool_call_id=asked.tool_calls[0].id, tool_name="look")
        await journal.append_tool_results([replace(first, metadata=known)])
        await journal.finish(CANCELLED)

        replay = await office.replays.replay(ALICE, run.id)

        assert (replay.difference, replay.end, replay.compared_messages) == (None, None, 2)

    async def test_a_run_that_never_began_has_nothing_to_compare(self, office: Office) -> None:
        run = await office.stores.started()
        await office.stores.runs.cancel(ALICE, run.id)

        replay = await office.replays.replay(ALICE, run.id)

        assert (replay.difference, replay.end, replay.compared_messages) == (None, None, 0)

    async def test_a_run_that_was_given_up_is_compared_up_to_there(self, office: Office) -> None:
        run = await office.stores.started()
        claim = await office.stores.claimed()
        await office.stores.queue.context(claim)
        await office.stores.queue.journal(claim).finish(CRASH_LOOP)

        replay = await office.replays.replay(ALICE, run.id)

        assert (replay.difference, replay.end) == (None, None)


class TestHooks:
    @pytest.mark.parametrize(
        ("acts", "reason"),
        [
            (
                {
                    "after_model": lambda reply: replace(reply, text=reply.text.upper()),
                    "after_tool": lambda result: replace(result, text="masked"),
                    "after_agent": lambda text: f"{text} Bye.",
                },
                StopReason.END_TURN,
            ),
            (
                {"before_tool": lambda _: ToolResult("refused", error="refused")},
                StopReason.END_TURN,
            ),
            ({"before_agent": lambda _: End("Closed today.")}, StopReason.HOOK),
            ({"after_tool": lambda _: 1 // 0}, StopReason.HOOK),
        ],
    )
    async def test_what_they_made_is_part_of_the_record_and_they_are_not_called(
        self, office: Office, acts: dict[str, Act], reason: StopReason
    ) -> None:
        log = Log()
        office.hooks = Hooks([scripted_hook("h", log, acts=acts)])
        settings = replace(SETTINGS, hooks=(HookSetting("h"),))
        run = await office.run(LOOKS, says("There."), settings=settings)
        log.called.clear()

        replay = await office.replays.replay(ALICE, run.id)

        assert (run.stop_reason, None, []) == (reason, replay.difference, log.called)

    async def test_a_call_of_theirs_is_made_again(self, office: Office) -> None:
        jumps = [CallTools((call("h1", "dig"),)), None]
        hook = scripted_hook("h", Log(), before_model=lambda _: jumps.pop(0))
        office.hooks = Hooks([hook])
        settings = replace(SETTINGS, hooks=(HookSetting("h"),))
        run = await office.run(says("There."), settings=settings)

        replay = await office.replays.replay(ALICE, run.id)

        assert (replay.difference, replay.end) == (None, StopReason.END_TURN)
        assert replay.compared_messages == 3


class TestDifferences:
    async def test_a_tool_that_is_gone_was_offered(self, office: Office) -> None:
        run = await office.run(LOOKS, says("There."))
        del office.tools[1]

        replay = await office.replays.replay(ALICE, run.id)

        assert replay.difference is not None
        assert replay.difference.path == "offered.tools"
        assert (
            replay.difference.recorded,
            replay.difference.replayed,
        ) == ('["look", "dig"]', '["look"]')

    async def test_arguments_that_no_longer_fit_are_told_at_their_result(
        self, office: Office
    ) -> None:
        run = await office.run(LOOKS, says("There."))
        office.tools[0] = PlainTool(properties={"what": {"type": "string", "minLength": 2}})

        replay = await office.replays.replay(ALICE, run.id)

        found = replay.difference
        assert found is not None
        assert (found.path, found.sequence, found.recorded) == ("messages[2].text", 3, "found")
        assert found.replayed.startswith("Error: ")
        assert replay.compared_messages == 1

    async def test_the_agent_as_it_is_now_may_end_otherwise(self, office: Office) -> None:
        looks = [calls(call(f"c{n}", arguments=f'{{"what": "{n}"}}')) for n in range(3)]
        run = await office.run(*looks, says("There."))
        limits = RunLimits(max_steps=2)
        await office.stores.agents.update(
            ALICE, run.agent_id, lambda agent: replace(agent, limits=limits)
        )

        then = await office.replays.replay(ALICE, run.id)
        now_ = await office.replays.replay(ALICE, run.id, current=True)

        assert then.difference is None
        assert now_.difference is not None
        assert (now_.difference.path, now_.end) == ("messages[5].text", StopReason.MAX_STEPS)


class TestRefusals:
    async def test_a_run_that_goes_on_is_not_replayed(self, office: Office) -> None:
        run = await office.stores.started()

        with pytest.raises(RunNotEndedError) as raised:
            await office.replays.replay(ALICE, run.id)

        assert raised.value.metadata == {"run_id": run.id, "state": "IDLE"}

    async def test_nobody_elses_run_is(self, office: Office) -> None:
        run = await office.run(says("There."))

        with pytest.raises(NotFoundError):
            await office.replays.replay(BOB, run.id)

    async def test_an_agent_that_is_gone_is_only_asked_for_as_it_was(self, office: Office) -> None:
        run = await office.run(LOOKS, says("There."))
        await office.stores.agents.delete(ALICE, run.agent_id)

        replay = await office.replays.replay(ALICE, run.id)
        with pytest.raises(AgentDeletedError):
            await office.replays.replay(ALICE, run.id, current=True)

        assert replay.difference is None
