from services.agent.domain.chat import ChatMessage, KnowledgeBase
from services.agent.domain.messages import Role
from services.agent.domain.models import KnowledgeBaseId
from services.agent.domain.turn.prompt import about_bases, closing, system_prompt, with_notes


def base(name: str, description: str = "") -> KnowledgeBase:
    return KnowledgeBase(KnowledgeBaseId(name), name, description)


class TestSystemPrompt:
    def test_alone_it_is_the_agent_s_own(self) -> None:
        assert system_prompt("  You are brief.\n") == "You are brief."

    def test_with_nothing_to_say_it_is_empty(self) -> None:
        assert system_prompt("", "", "") == ""

    def test_what_is_told_of_the_tools_follows(self) -> None:
        assert system_prompt("Be brief.", "", "A.", "B.") == "Be brief.\n\nA.\n\nB."


class TestAboutBases:
    def test_it_says_which_bases_there_are_and_what_each_is_for(self) -> None:
        told = about_bases([base("Handbook", "How we\n work."), base("Wiki")])

        assert told.startswith("You have these knowledge bases:\n")
        assert "- Handbook: How we work.\n- Wiki: no description\n" in told
        assert "query_knowledge" in told
        assert "[1]" in told

    def test_a_description_cannot_fill_the_context(self) -> None:
        assert len(about_bases([base("A", "x" * 4000)])) < 2000

    def test_bases_that_cannot_be_listed_are_still_told(self) -> None:
        assert "query_knowledge searches them" in about_bases(None)


class TestNotes:
    def test_without_notes_it_stays_as_it_is(self) -> None:
        assert with_notes("Be brief.", left_out=0) == "Be brief."

    def test_what_is_left_out_is_said(self) -> None:
        assert "The 4 oldest" in with_notes("Be brief.", left_out=4)


class TestClosing:
    def test_the_last_message_asks_for_an_answer(self) -> None:
        question, result = ChatMessage(Role.USER, "Where?"), ChatMessage(Role.TOOL, "On b1.")

        first, last = closing([question, result])

        assert first == question
        assert last.role is Role.TOOL
        assert last.text.startswith("On b1.\n\nNo more tools can be called")

    def test_where_nothing_is_said_nothing_is_added(self) -> None:
        assert closing([]) == []
