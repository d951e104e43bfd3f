import math
from typing import Any

import pytest

from services.agent.api.convert.sessions import from_message
from services.agent.domain.drafts import (
    MAX_ARGUMENTS_BYTES,
    MAX_METADATA_BYTES,
    MAX_NAME_BYTES,
    MAX_TEXT_BYTES,
    MAX_TOOL_CALLS,
    cut,
    fit,
    kept_size,
    wire_size,
)
from services.agent.domain.messages import Citation, Draft, Message, Role, ToolCall, Whole
from services.agent.domain.models import (
    ChunkId,
    DocumentId,
    KnowledgeBaseId,
    MessageId,
    RunId,
    SessionId,
    ToolCallId,
)
from services.common.clock import now
from services.common.ids import new_id

THREE_MIB = 3 * 1024 * 1024


def calls(*calls: tuple[str, str]) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(ToolCallId(id_), "look", arguments) for id_, arguments in calls)


def citation(name: str = "handbook.md", *, headings: tuple[str, ...] = ("Backups",)) -> Citation:
    return Citation(
        label="1",
        knowledge_base_id=KnowledgeBaseId(new_id()),
        document_id=DocumentId(new_id()),
        chunk_id=ChunkId(new_id()),
        document_name=name,
        heading_path=headings,
        start_line=1,
        end_line=2**31 - 1,
        score=0.123456789,
    )


def on_the_wire(draft: Draft) -> int:
    committed = Message(
        **{name: getattr(draft, name) for name in Draft.__slots__},
        id=MessageId(new_id()),
        session_id=SessionId(new_id()),
        run_id=RunId(new_id()),
        sequence=2**62,
        step=2**31 - 1,
        create_time=now(),
    )
    return from_message(committed).ByteSize()


HUGE = Draft(
    Role.ASSISTANT,
    "\u5b57" * MAX_TEXT_BYTES,
    tool_calls=tuple(
        ToolCall(ToolCallId(f"{place}" * 300), "look" * 200, "\u5b57" * 100_000)
        for place in range(200)
    ),
    tool_call_id=ToolCallId("x" * 1000),
    tool_name="look" * 1000,
    citations=tuple(citation("n" * 200, headings=("h" * 500,) * 6) for _ in range(500)),
    metadata={f"k{place}": "\u5b57" * 100_000 for place in range(100)},
)


class TestCut:
    def test_a_text_within_the_limit_stays(self) -> None:
        assert cut("abc", 3) == "abc"

    def test_a_longer_one_says_how_long_it_was(self) -> None:
        text = cut("x" * 1000, 100)

        assert text.startswith("xxx")
        assert text.endswith("[cut here: 1000 bytes in all]")
        assert len(text) == 100

    def test_no_character_is_cut_in_two(self) -> None:
        text = cut("\u5b57" * 100, 101)

        assert len(text.encode()) <= 101
        assert "\ufffd" not in text

    @pytest.mark.parametrize("unstorable", ["\0", "\ud800"])
    def test_what_cannot_be_stored_is_replaced(self, unstorable: str) -> None:
        assert cut(f"a{unstorable}b", 100) == "a\ufffdb"


class TestFit:
    def test_a_draft_within_the_limits_stays(self) -> None:
        draft = Draft(
            Role.ASSISTANT,
            "Hm",
            tool_calls=calls(("a", '{"x": 1}'), ("b", "")),
            citations=(citation(),),
            metadata={"usage": {"n": [1, None, True, 0.5]}},
        )

        assert draft == fit(draft)

    def test_everything_in_it_is_cleaned(self) -> None:
        draft = Draft(
            Role.ASSISTANT,
            "\0",
            tool_calls=(ToolCall(ToolCallId("a\0"), "b\0", "c\0"),),
            tool_name="d\0",
            citations=(citation("e\0", headings=("f\0",)),),
            metadata={"g\0": {"h\0": ["i\0"]}},
        )

        assert "\0" not in repr(fit(draft)).encode().decode("unicode_escape")
        assert fit(draft).metadata == {"g\ufffd": {"h\ufffd": ["i\ufffd"]}}

    def test_call_and_result_keep_the_same_id(self) -> None:
        identifier = ToolCallId("\0" * 1000)
        asked = fit(Draft(Role.ASSISTANT, "", tool_calls=(ToolCall(identifier, "look", ""),)))
        answered = fit(Draft(Role.TOOL, "", tool_call_id=identifier))

        assert asked.tool_calls[0].id == answered.tool_call_id
        assert len(asked.tool_calls[0].id.encode()) <= MAX_NAME_BYTES

    def test_ids_that_are_missing_or_double_are_made_unique(self) -> None:
        draft = Draft(Role.ASSISTANT, "", tool_calls=calls(("a", ""), ("a", ""), ("", "")))

        assert [call.id for call in fit(draft).tool_calls] == ["a", "a#2", "call#3"]

    def test_arguments_share_one_limit_and_say_where_they_were_cut(self) -> None:
        most = "x" * (MAX_ARGUMENTS_BYTES - 100)

        first, second = fit(
            Draft(Role.ASSISTANT, "", tool_calls=calls(("a", most), ("b", most)))
        ).tool_calls

        assert most == first.arguments_json
        assert len(second.arguments_json) == 100
        assert "cut here" in second.arguments_json

    def test_what_is_dropped_is_counted(self) -> None:
        fitting = fit(HUGE)

        assert len(fitting.tool_calls) == MAX_TOOL_CALLS
        assert fitting.metadata["dropped_tool_calls"] == 200 - MAX_TOOL_CALLS
        assert 500 - len(fitting.citations) == fitting.metadata["dropped_citations"]
        assert int(str(fitting.metadata["dropped_metadata"])) > 0

    def test_one_huge_entry_of_metadata_goes_alone(self) -> None:
        metadata: dict[str, Any] = {"model": "m", "trace": ["x" * 1000] * 1000}

        fitting = fit(Draft(Role.ASSISTANT, "", metadata=metadata)).metadata

        assert fitting == {"model": "m", "dropped_metadata": 1}

    def test_numbers_that_json_does_not_know_become_null(self) -> None:
        metadata: dict[str, Any] = {"score": math.nan, "all": [math.inf, 1.5]}

        fitting = fit(Draft(Role.ASSISTANT, "", metadata=metadata)).metadata

        assert fitting == {"score": None, "all": [None, 1.5]}


class TestWhole:
    def test_what_fits_is_kept_as_it_is(self) -> None:
        whole = Whole("ü" * (MAX_TEXT_BYTES // 2), 10, "there")

        assert fit(Draft(Role.TOOL, "", whole=whole)).whole == whole

    def test_what_does_not_fit_is_left_out_and_the_rest_is_clean(self) -> None:
        whole = Whole("a\0" + "字" * MAX_TEXT_BYTES, 10**9, "s" * 10_000)

        fitting = fit(Draft(Role.TOOL, "", whole=whole)).whole

        assert fitting is not None
        assert len(fitting.text.encode()) in range(MAX_TEXT_BYTES - 2, MAX_TEXT_BYTES + 1)
        assert fitting.text.startswith("a\ufffd字")
        assert (fitting.full_chars, len(fitting.source)) == (10**9, 4096)

    @pytest.mark.parametrize(("full", "kept"), [(500, 500), (10**9, MAX_TEXT_BYTES)])
    def test_what_is_kept_has_a_size(self, full: int, kept: int) -> None:
        draft = Draft(Role.TOOL, "x", metadata={"full_chars": full})

        assert kept_size(draft) == wire_size(draft) + kept
        assert kept_size(Draft(Role.TOOL, "x")) == wire_size(Draft(Role.TOOL, "x"))


class TestWireSize:
    def test_the_largest_message_fits_a_page(self) -> None:
        assert wire_size(fit(HUGE)) < THREE_MIB - 4096

    @pytest.mark.parametrize(
        "draft",
        [
            Draft(Role.USER, ""),
            Draft(Role.USER, "\u5b57" * 1000),
            Draft(Role.ASSISTANT, "", tool_calls=calls(*((str(n), "") for n in range(100)))),
            Draft(Role.ASSISTANT, "x", citations=tuple(citation() for _ in range(100))),
            Draft(
                Role.TOOL, "x", metadata={"all": [1] * 1000, "more": {str(n): n for n in range(99)}}
            ),
            fit(HUGE),
        ],
        ids=["empty", "text", "calls", "citations", "metadata", "huge"],
    )
    def test_it_is_no_less_than_what_is_sent(self, draft: Draft) -> None:
        assert on_the_wire(draft) <= wire_size(draft)

    def test_metadata_is_bounded_on_the_wire(self) -> None:
        draft = fit(Draft(Role.TOOL, "", metadata={str(n): [n] * 100 for n in range(1000)}))

        assert on_the_wire(draft) <= MAX_METADATA_BYTES + 1024
