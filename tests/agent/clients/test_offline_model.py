import json
from dataclasses import replace

import pytest

from services.agent.clients.offline_model import OfflineModel
from services.agent.domain.chat import ChatMessage, ModelReply, ModelRequest, Provider
from services.agent.domain.messages import Role
from services.agent.domain.models import AgentSettings, KnowledgeBaseId, ToolCallId
from services.agent.domain.run_models import StopReason
from services.agent.domain.tools.query_knowledge import QUERY_KNOWLEDGE, QueryKnowledge
from tests.agent.turns import Scene, Shelf, TurnJournal

MODEL = OfflineModel(default=True)
TOOL = QueryKnowledge(Shelf()).spec


def user(text: str) -> ChatMessage:
    return ChatMessage(Role.USER, text)


async def ask(*messages: ChatMessage, offered: bool = True) -> ModelReply:
    return await MODEL.complete(ModelRequest(messages, (TOOL,) if offered else ()))


async def converse(question: str, shelf: Shelf) -> TurnJournal:
    """A run of an agent that has the shelf's bases and no chat model."""
    scene = Scene(MODEL, shelf=shelf, journal=TurnJournal(question))
    bases = tuple(KnowledgeBaseId(id_) for id_ in shelf.bases_)
    scene.settings = replace(AgentSettings("Helper"), knowledge_base_ids=bases)
    ending = await scene.work()
    assert ending.stop_reason is StopReason.END_TURN
    return scene.journal


class TestSearch:
    async def test_the_question_is_looked_up_first(self) -> None:
        reply = await ask(user("Where is\nthe backup?"))

        (call,) = reply.tool_calls
        assert call.name == QUERY_KNOWLEDGE
        assert json.loads(call.arguments_json) == {"query": "Where is the backup?"}

    async def test_a_huge_question_is_cut_to_what_a_search_takes(self) -> None:
        reply = await ask(user("备份" * 500_000))

        assert len(json.loads(reply.tool_calls[0].arguments_json)["query"]) == 2000

    async def test_each_turn_is_looked_up_anew(self) -> None:
        before = ChatMessage(
            Role.TOOL, "found", tool_call_id=ToolCallId("search"), tool_name=QUERY_KNOWLEDGE
        )

        reply = await ask(user("one"), before, ChatMessage(Role.ASSISTANT, "a"), user("two"))

        assert json.loads(reply.tool_calls[0].arguments_json) == {"query": "two"}


class TestAnswer:
    async def test_it_quotes_the_best_passages_with_their_marks(self) -> None:
        shelf = Shelf().add("b1", "Handbook", "backup on b1\n\nevery night", "backup 2", "no")

        journal = await converse("backup", shelf)

        assert journal.last.text == (
            "No chat model is configured for this agent. "
            "This is what the documents say, word for word:\n\n"
            "> backup on b1\n>\n> every night\n>\n> — Handbook › Part › 1 (lines 1-1) [1]\n\n"
            "> backup 2\n>\n> — Handbook › Part › 2 (lines 2-2) [2]"
        )
        assert [each.label for each in journal.last.citations] == ["1", "2"]
        assert journal.last.metadata["citation_basis"] == "marked"
        assert journal.last.metadata["model"] == "offline"

    async def test_at_most_three_passages_are_quoted_and_each_is_kept_short(self) -> None:
        shelf = Shelf().add("b1", "Handbook", *(f"backup {'x' * 3000}" for _ in range(5)))

        journal = await converse("backup", shelf)

        assert len(journal.last.citations) == 3
        assert len(journal.last.text) < 4500

    @pytest.mark.parametrize(
        ("question", "words"),
        [
            ("restore", "No chat model is configured for this agent, and nothing"),
            ("怎么恢复？", "没有找到相关内容"),
        ],
    )
    async def test_nothing_found_is_said_in_the_user_s_language(
        self, question: str, words: str
    ) -> None:
        journal = await converse(question, Shelf().add("b1", "Handbook", "backup"))

        assert words in journal.last.text
        assert journal.last.citations == ()

    @pytest.mark.parametrize(
        ("question", "words"), [("restore", "no knowledge base"), ("恢复", "没有可引用的知识库")]
    )
    async def test_without_bases_it_says_that_it_can_only_quote(
        self, question: str, words: str
    ) -> None:
        journal = await converse(question, Shelf())

        assert words in journal.last.text
        assert len(journal.messages) == 2

    async def test_a_search_that_failed_is_told(self) -> None:
        shelf = Shelf().add("b1", "Handbook", "backup")
        shelf.down = True

        journal = await converse("backup", shelf)

        assert journal.last.text == (
            "No chat model is configured for this agent, and the documents cannot be searched: "
            "The knowledge service is unavailable."
        )

    async def test_it_is_told_apart_from_other_models(self) -> None:
        assert MODEL.info.provider is Provider.OFFLINE
