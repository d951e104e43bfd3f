from services.agent.domain.chat import Ending
from services.agent.domain.endings import (
    AGENT_DELETED,
    CANCELLED,
    CRASH_LOOP,
    INTERNAL,
    last_messages,
    notice,
)
from services.agent.domain.messages import Draft, Role, ToolCall
from services.agent.domain.models import ToolCallId
from services.agent.domain.run_models import RunState, StopReason

FINISHED = Ending(RunState.FINISHED, StopReason.END_TURN)


def call(identifier: str) -> ToolCall:
    return ToolCall(ToolCallId(identifier), "look", "{}")


class TestLastMessages:
    def test_an_answer_needs_nothing_else(self) -> None:
        answer = Draft(Role.ASSISTANT, "Hi")

        assert [answer] == last_messages([], FINISHED, [answer])

    def test_a_missing_result_comes_before_what_closes_the_run(self) -> None:
        closing = notice("Stopped.")

        missing, last = last_messages([call("b")], CANCELLED, [closing])

        assert (missing.role, missing.tool_call_id, missing.tool_name) == (Role.TOOL, "b", "look")
        assert missing.text == "cancelled by the user"
        assert closing == last

    def test_a_call_that_failed_with_its_run_was_not_cancelled(self) -> None:
        missing, _ = last_messages([call("a")], INTERNAL)

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
