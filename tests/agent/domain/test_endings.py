from services.agent.domain.chat import Ending
from services.agent.domain.endings import (
    AGENT_DELETED,
    CANCELLED,
    CRASH_LOOP,
    INTERNAL,
    last_messages,
    notice,
    unanswered,
)
from services.agent.domain.messages import Draft, Role, ToolCall
from services.agent.domain.models import ToolCallId
from services.agent.domain.run_models import RunState, StopReason

FINISHED = Ending(RunState.FINISHED, StopReason.END_TURN)


def asking(*ids: str) -> Draft:
    calls = tuple(ToolCall(ToolCallId(id_), "look", "{}") for id_ in ids)
    return Draft(Role.ASSISTANT, "", tool_calls=calls)


def result(identifier: str) -> Draft:
    return Draft(Role.TOOL, "seen", tool_call_id=ToolCallId(identifier), tool_name="look")


class TestUnanswered:
    def test_calls_without_result_are_told_in_their_order(self) -> None:
        turn = [Draft(Role.USER, "Hello"), asking("a", "b", "c"), result("b")]

        assert [call.id for call in unanswered(turn)] == ["a", "c"]

    def test_an_id_may_come_again_in_a_later_message(self) -> None:
        turn = [asking("a"), result("a"), asking("a")]

        assert [call.id for call in unanswered(turn)] == ["a"]

    def test_a_turn_without_calls_has_none(self) -> None:
        assert unanswered([Draft(Role.USER, "Hello"), Draft(Role.ASSISTANT, "Hi")]) == ()


class TestLastMessages:
    def test_an_answer_needs_nothing_else(self) -> None:
        answer = Draft(Role.ASSISTANT, "Hi")

        assert [answer] == last_messages([Draft(Role.USER, "Hello")], FINISHED, [answer])

    def test_a_missing_result_comes_before_what_closes_the_run(self) -> None:
        closing = notice("Stopped.")

        missing, last = last_messages([asking("a", "b"), result("a")], CANCELLED, [closing])

        assert (missing.role, missing.tool_call_id, missing.tool_name) == (Role.TOOL, "b", "look")
        assert missing.text == "cancelled by the user"
        assert closing == last

    def test_a_call_that_failed_with_its_run_was_not_cancelled(self) -> None:
        missing, _ = last_messages([asking("a")], INTERNAL, [])

        assert "cancelled" not in missing.text
        assert missing.metadata == {"error": "interrupted"}

    def test_every_failure_says_something_to_a_person(self) -> None:
        for ending in (AGENT_DELETED, CRASH_LOOP, INTERNAL):
            [told] = last_messages([], ending, [])

            assert ending.error is not None
            assert (Role.SYSTEM, ending.error.message) == (told.role, told.text)

    def test_who_says_something_itself_is_not_repeated(self) -> None:
        told = notice("It broke.")

        assert [told] == last_messages([], INTERNAL, [told])
