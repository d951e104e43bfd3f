from services.agent.domain.chat import Ending, FinishReason, ModelReply, ToolResult
from services.agent.domain.messages import Role, Whole
from services.agent.domain.run_models import Cost, RunError, RunState, StopReason, Usage
from services.agent.domain.turn.replies import answer, asking, instead_of_answer, result
from tests.agent.turns import Shelf, call, calls

FOUND = [passage.citation for passage in Shelf().add("b1", "Handbook", "one", "two").passages]


class TestAsking:
    def test_it_keeps_the_whole_reply(self) -> None:
        reply = ModelReply(
            "Let me look.",
            tool_calls=(call("a"),),
            finish_reason=FinishReason.TOOL_CALLS,
            usage=Usage(10, 5, 4, 3, Cost("EUR", 70)),
            reasoning="Hm.",
            model="m-2026",
        )

        draft = asking(reply, model="m")

        assert (draft.role, draft.text) == (Role.ASSISTANT, "Let me look.")
        assert draft.tool_calls == (call("a"),)
        assert draft.metadata == {
            "model": "m",
            "served_model": "m-2026",
            "finish_reason": "tool_calls",
            "usage": {
                "input_tokens": 10,
                "output_tokens": 5,
                "cached_input_tokens": 4,
                "reasoning_tokens": 3,
                "cost": {"currency": "EUR", "nanos": 70},
            },
            "reasoning": "Hm.",
        }

    def test_what_is_not_known_is_absent(self) -> None:
        draft = asking(ModelReply("", tool_calls=(call("a"),), model="m"), model="m")

        assert draft.metadata == {"model": "m", "finish_reason": "stop"}


class TestResult:
    def test_it_answers_its_call(self) -> None:
        draft = result(call("a"), ToolResult("found", citations=tuple(FOUND)))

        assert (draft.role, draft.tool_call_id, draft.tool_name) == (Role.TOOL, "a", "look")
        assert (draft.text, draft.citations, draft.metadata) == ("found", tuple(FOUND), {})

    def test_a_failure_is_marked(self) -> None:
        assert result(call("a"), ToolResult("Error: x.", error="failed")).metadata == {
            "error": "failed"
        }

    def test_it_is_never_without_text(self) -> None:
        assert result(call("a"), ToolResult("")).text == "(no output)"

    def test_a_cut_result_tells_how_long_it_was(self) -> None:
        whole = Whole("x" * 50, 500)

        draft = result(call("a"), ToolResult("x", whole=whole))

        assert (draft.whole, draft.metadata) == (whole, {"full_chars": 500})


class TestAnswer:
    def test_it_rests_on_what_was_found(self) -> None:
        draft = answer(ModelReply("Yes."), model="m", retrieved=FOUND)

        assert draft.metadata["citation_basis"] == "retrieved"
        assert len(draft.citations) == 1  # both carry the empty label here, and so are one

    def test_without_passages_there_is_no_basis(self) -> None:
        assert "citation_basis" not in answer(calls(), model="m", retrieved=[]).metadata


class TestInsteadOfAnswer:
    def test_it_is_marked_as_a_notice(self) -> None:
        draft = instead_of_answer("Stopped.", Ending(RunState.FINISHED, StopReason.MAX_STEPS))

        assert (draft.role, draft.text) == (Role.ASSISTANT, "Stopped.")
        assert draft.metadata == {"notice": "max_steps"}

    def test_of_an_error_chatmind_itself_speaks(self) -> None:
        error = RunError("MODEL_UNAVAILABLE", "down")

        draft = instead_of_answer("Down.", Ending(RunState.ERROR, StopReason.MODEL_ERROR, error))

        assert (draft.role, draft.text) == (Role.SYSTEM, "Down.")
