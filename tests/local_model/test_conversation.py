"""What a small real model and ChatMind do together: looking up, calculating, and just talking.

The model is weak, so each thing is asked in several wordings, each in a session of its own, and
what it did is counted and told at the end. A test fails if ChatMind did not keep its promises in
any of them, or if the model did the thing in none; not even that is asked of it with its own chat
template, which does not fit it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

import pytest

from tests.e2e.installation import Installation
from tests.local_model.conversation import Conversation, Turn, create_agent
from tests.local_model.handbook import TOPICS
from tests.local_model.tally import Tally

pytestmark = pytest.mark.timeout(3600)

MODELS: Final = ("native", "tags")
RETRIEVALS: Final = (
    *((model, language) for model in MODELS for language in TOPICS),
    ("stream", "English"),
    ("own-template", "English"),
)
ONLY_COUNTED: Final = {"own-template"}
LIBRARIAN: Final = "You answer questions about the company from its handbook, briefly."
ASSISTANT: Final = "You are a helpful assistant. Answer in one sentence."


def year() -> str:
    """The present year, which the model cannot know."""
    return str(datetime.now(ZoneInfo("Asia/Shanghai")).year)


TASKS: Final[Mapping[str, tuple[Sequence[str], Callable[[], str]]]] = {
    "calculator": (
        (
            "Use the calculator: what is 4817 * 39?",
            "How much is 4817 times 39?",
            "请计算 4817 乘以 39。",
        ),
        lambda: "187863",
    ),
    "current_time": (
        (
            "What is today's date in Shanghai? Tell the year, too.",
            "Which year is it now in Asia/Shanghai?",
            "现在上海是几年几月几日？",
        ),
        year,
    ),
}


def kept_promises(turn: Turn) -> bool:
    """Whether the turn ended, and every call has exactly one result."""
    asked = [call["id"] for call in turn.calls]
    answered = [each["toolCallId"] for each in turn.results]
    return sorted(asked) == sorted(answered) and len(set(asked)) == len(asked)


def attempts(
    installation: Installation, agent_id: str, texts: Iterable[str], *, tally: Tally
) -> Iterable[tuple[Conversation, Turn]]:
    """A session for each text, and what came of it."""
    for text in texts:
        conversation = Conversation(installation, agent_id)
        turn = conversation.say(text)
        tally.write(f"{turn.told()}  < {text}")
        assert kept_promises(turn), turn
        yield conversation, turn


class TestRetrieval:
    """Questions whose answers stand in the knowledge base."""

    @pytest.mark.parametrize(("model", "language"), RETRIEVALS)
    def test_it_looks_up_answers_cites_and_goes_on(
        self, installation: Installation, base_id: str, tally: Tally, model: str, language: str
    ) -> None:
        """The handbook is asked, the answer holds its fact, and a second turn uses the first."""
        topic = TOPICS[language]
        agent_id = create_agent(
            installation,
            displayName=f"{model} {language}",
            systemPrompt=LIBRARIAN,
            model=model,
            knowledgeBaseIds=[base_id],
        )
        whole = []

        for conversation, first in attempts(installation, agent_id, topic.questions, tally=tally):
            second = conversation.say(topic.more)
            tally.write(f"{second.told()}  < {topic.more}")
            assert kept_promises(second), second
            checks = {
                "looked up": "query_knowledge" in first.called,
                "finished": first.finished,
                "right": topic.fact in first.answer,
                "cited": topic.document in first.cited,
            }
            more = {"went on": second.finished, "right again": topic.more_fact in second.answer}
            marked = {"marked its source": first.marks_its_sources}
            group = f"{model}, {language}"
            whole.append(tally.count(group, {**checks, **more}))
            tally.count(group, marked)

        assert any(whole) or model in ONLY_COUNTED, tally.lines()


@pytest.mark.parametrize("model", MODELS)
class TestOtherTools:
    """Tools that need no knowledge base."""

    @pytest.mark.parametrize("tool", TASKS)
    def test_it_calls_the_tool_and_tells_its_result(
        self, installation: Installation, tally: Tally, model: str, tool: str
    ) -> None:
        """Of two tools the right one is called, and what it gave is told."""
        questions, fact = TASKS[tool]
        agent_id = create_agent(
            installation,
            displayName=f"{model} {tool}",
            systemPrompt=ASSISTANT,
            model=model,
            tools=list(TASKS),
        )

        whole = [
            tally.count(
                f"{model}, {tool}",
                {
                    "called": tool in turn.called,
                    "finished": turn.finished,
                    "right": fact() in turn.answer.replace(",", ""),
                },
            )
            for _, turn in attempts(installation, agent_id, questions, tally=tally)
        ]

        assert any(whole), tally.lines()


@pytest.mark.parametrize("model", MODELS)
class TestChat:
    """Words that need no tool."""

    def test_chat_stays_chat(
        self, installation: Installation, base_id: str, tally: Tally, model: str
    ) -> None:
        """No tool is called where none is of use, and what is said is an answer."""
        agent_id = create_agent(
            installation,
            displayName=f"{model} chat",
            systemPrompt=ASSISTANT,
            model=model,
            tools=list(TASKS),
        )
        texts = ("Hello, my name is Ada.", "Tell me a short joke about cats.", "谢谢你，再见！")

        whole = [
            tally.count(
                f"{model}, chat",
                {"called nothing": not turn.called, "finished": turn.finished},
            )
            for _, turn in attempts(installation, agent_id, texts, tally=tally)
        ]

        assert any(whole), tally.lines()
