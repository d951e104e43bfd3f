from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.agent.domain.chat import ToolResult
from services.agent.domain.messages import Citation, Message, Role
from services.agent.domain.models import (
    Agent,
    AgentId,
    AgentSettings,
    ChunkId,
    DocumentId,
    KnowledgeBaseId,
    MessageId,
    RunId,
    RunLimits,
    SessionId,
)
from services.agent.domain.run_models import Run, RunError, RunState, StopReason, Usage
from services.agent.domain.sub_runs import Answered, Task
from services.agent.domain.tools.ask_agent import AskAgentTool, tool_names
from services.agent.domain.tools.errors import FailedToolError
from services.agent.domain.tools.registry import Tools
from services.common.ids import new_id
from tests.agent.domain.tools.contexts import CONTEXT
from tests.agent.turns import START

LEFT = RunLimits(max_tool_calls=3, max_tokens=100, max_duration=timedelta(seconds=9))


def agent(name: str = "Researcher", description: str = "", *, id_: str = "") -> Agent:
    settings = AgentSettings(name, description=description)
    return Agent(AgentId(id_ or new_id()), "acme", "alice", settings, START, START)


def cited(label: str) -> Citation:
    return Citation(
        label=label,
        knowledge_base_id=KnowledgeBaseId("b"),
        document_id=DocumentId("d"),
        chunk_id=ChunkId(f"c{label}"),
        document_name="Handbook",
        heading_path=("Backups",),
        start_line=3,
        end_line=9,
        score=0.5,
    )


def ended(
    text: str | None,
    *labels: str,
    state: RunState = RunState.FINISHED,
    reason: StopReason = StopReason.END_TURN,
    notice: bool = False,
    error: RunError | None = None,
) -> Answered:
    """What came of a task."""
    run = Run(
        id=RunId("r2"),
        session_id=SessionId("s2"),
        tenant="acme",
        user_id="alice",
        agent_id=AgentId("a2"),
        message_id=MessageId("m1"),
        turn=1,
        state=state,
        create_time=START,
        stop_reason=reason,
        usage=Usage(70, 7),
        error=error,
    )
    message = Message(
        Role.ASSISTANT,
        text or "",
        citations=tuple(cited(label) for label in labels),
        metadata={"notice": reason.value} if notice else {},
        id=MessageId("m2"),
        session_id=run.session_id,
        run_id=run.id,
        sequence=2,
        step=1,
        create_time=START,
    )
    return Answered(run, None if text is None else message, 4)


class Colleague:
    """Asked, it gives what it is told to; satisfies `AskAgent`."""

    def __init__(self, answered: Answered) -> None:
        self.answered = answered
        self.tasks: list[Task] = []

    async def __call__(self, task: Task) -> Answered:
        self.tasks.append(task)
        return self.answered


async def asked(answered: Answered, *, first_label: int = 11) -> ToolResult:
    colleague = Colleague(answered)
    context = replace(CONTEXT, ask=colleague, left=LEFT, next_label=first_label)
    return await AskAgentTool("ask_researcher", agent()).run({"task": "Find out."}, context)


class TestSpec:
    def test_it_tells_what_the_agent_is_for(self) -> None:
        spec = AskAgentTool("ask_x", agent("The  Researcher", "Finds\nthings out.")).spec

        assert spec.description.startswith("Asks another agent, 'The Researcher', and gives")
        assert "Finds things out. Use it" in spec.description
        assert 'Example: {"task": ' in spec.description
        assert spec.input_schema["required"] == ["task"]

    def test_an_agent_without_a_description_is_told_of_too(self) -> None:
        assert "It is for what its name says." in AskAgentTool("ask_x", agent()).spec.description

    def test_a_long_description_is_cut(self) -> None:
        assert len(AskAgentTool("ask_x", agent(description="x" * 4000)).spec.description) < 2000

    def test_it_may_be_asked_again_and_its_answer_is_not_trusted(self) -> None:
        spec = AskAgentTool("ask_x", agent()).spec

        assert (spec.idempotent, spec.trusted, spec.asks_agent) == (True, False, True)


class TestNames:
    @pytest.mark.parametrize(
        ("display_name", "name"),
        [
            ("Researcher", "ask_researcher"),
            ("  The Backup-Expert! ", "ask_the_backup_expert"),
            ("Überprüfer", "ask_uberprufer"),
            ("研究员", "ask_agent"),
            ("x" * 200, f"ask_{'x' * 40}"),
        ],
    )
    def test_they_come_from_display_names(self, display_name: str, name: str) -> None:
        [made] = tool_names([agent(display_name)]).values()

        assert made == name

    def test_those_that_would_be_alike_are_told_apart_whatever_the_order(self) -> None:
        agents = [agent("Researcher"), agent("researcher!"), agent("Writer")]

        names = tool_names(agents)

        assert names == tool_names(agents[::-1])
        assert len(set(names.values())) == 3
        assert names[agents[2].id] == "ask_writer"
        assert {name.rpartition("_")[0] for name in list(names.values())[:2]} == {"ask_researcher"}

    @given(st.lists(st.text(min_size=1, max_size=60), max_size=16))
    def test_they_are_always_valid_and_unique(self, display_names: list[str]) -> None:
        agents = [agent(name) for name in display_names]
        names = tool_names(agents)

        assert set(names) == {each.id for each in agents}
        Tools(AskAgentTool(names[each.id], each) for each in agents)


class TestAsking:
    async def test_the_task_is_all_that_is_told_and_the_call_and_budget_come_from_the_run(
        self,
    ) -> None:
        colleague, callee = Colleague(ended("Done.")), agent()
        context = replace(CONTEXT, ask=colleague, left=LEFT)

        await AskAgentTool("ask_x", callee).run({"task": "Find out."}, context)

        assert [Task(callee.id, "Find out.", CONTEXT.call_key, LEFT)] == colleague.tasks

    async def test_where_nobody_can_be_asked_the_call_fails(self) -> None:
        with pytest.raises(FailedToolError):
            await AskAgentTool("ask_x", agent()).run({"task": "Find out."}, CONTEXT)


class TestAnswer:
    async def test_it_is_the_result_and_counts_what_it_cost(self) -> None:
        result = await asked(ended("It is so."))

        assert (result.text, result.error) == ("It is so.", None)
        assert (result.usage, result.tool_calls) == (Usage(70, 7), 4)
        assert result.source == "agent 'Researcher'"

    async def test_what_it_rests_on_has_labels_of_the_asking_run(self) -> None:
        result = await asked(ended("So [2], and so [1, 2].", "2", "1"))

        text, _, sources = result.text.partition("\n\n")
        assert text == "So [11], and so [12, 11]."
        assert [each.label for each in result.citations] == ["11", "12"]
        assert sources.splitlines()[0] == "[11] Handbook › Backups (lines 3-9)"

    async def test_an_answer_that_came_early_says_so(self) -> None:
        result = await asked(ended("So far.", reason=StopReason.MAX_STEPS))

        assert result.text == "So far.\n\n[It stopped before it was done: max_steps.]"
        assert result.error is None

    @pytest.mark.parametrize(
        ("answered", "word", "text"),
        [
            (
                ended("I reached the limit.", reason=StopReason.MAX_TOKENS, notice=True),
                "max_tokens",
                "(max_tokens): I reached the limit.",
            ),
            (
                ended(
                    None,
                    state=RunState.ERROR,
                    reason=StopReason.MODEL_ERROR,
                    error=RunError("MODEL_UNAVAILABLE", "It is down."),
                ),
                "model_error",
                "(model_error): It is down.",
            ),
            (
                ended(None, state=RunState.CANCELLED, reason=StopReason.CANCELLED),
                "cancelled",
                "(cancelled).",
            ),
        ],
    )
    async def test_where_there_is_none_the_reason_is_told(
        self, answered: Answered, word: str, text: str
    ) -> None:
        result = await asked(answered)

        assert result.error == word
        assert result.text == f"Error: the agent 'Researcher' gave no answer {text}"
        assert (result.usage, result.tool_calls) == (Usage(70, 7), 4)
