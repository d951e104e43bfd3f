from dataclasses import replace

import pytest

from services.agent.domain.chat import Passage
from services.agent.domain.messages import Citation, ToolCall
from services.agent.domain.models import ChunkId, DocumentId, KnowledgeBaseId, ToolCallId
from services.agent.domain.turn.citations import (
    answer_citations,
    carried_over,
    first_label,
    header,
    labelled,
    marks,
    passages_in,
    render,
)


def citation(label: str = "", *, chunk: str = "c1", score: float = 0.5) -> Citation:
    return Citation(
        label=label,
        knowledge_base_id=KnowledgeBaseId("b1"),
        document_id=DocumentId("d1"),
        chunk_id=ChunkId(chunk),
        document_name="Handbook",
        heading_path=("Backups", "Restore"),
        start_line=40,
        end_line=52,
        score=score,
    )


def call(id_: str, name: str = "query_knowledge") -> ToolCall:
    return ToolCall(ToolCallId(id_), name, "{}")


class TestFirstLabel:
    def test_each_search_owns_a_block(self) -> None:
        calls = [call("a"), call("t", "current_time"), call("b"), call("c")]

        firsts = [
            first_label(calls, ToolCallId(id_), tool_name="query_knowledge", block=5)
            for id_ in "abc"
        ]

        assert firsts == [1, 6, 11]

    def test_so_does_each_agent_that_is_asked(self) -> None:
        calls = [call("a", "ask_writer"), call("b"), call("c", "ask_writer"), call("d")]

        firsts = [
            first_label(calls, ToolCallId(id_), tool_name="query_knowledge", block=5)
            for id_ in "abcd"
        ]

        assert firsts == [1, 51, 56, 106]


class TestCarriedOver:
    def test_marks_and_citations_get_new_labels(self) -> None:
        text, carried = carried_over(
            "So [3], 【1】 and [1, 3].", [citation("3"), citation("1")], 51
        )

        assert text == "So [51], [52] and [52, 51]."
        assert [each.label for each in carried] == ["51", "52"]

    def test_marks_of_nothing_are_none_any_more(self) -> None:
        text, _ = carried_over("So [7], [1, 7] and [2].", [citation("1")], 51)

        assert text == "So (7), [51] and (2)."

    def test_code_is_left_as_it_is(self) -> None:
        text, _ = carried_over("Use `a[1]` [1].\n```\nb[1]\n```", [citation("1")], 51)

        assert text == "Use `a[1]` [51].\n```\nb[1]\n```"

    def test_no_more_are_carried_than_a_block_holds(self) -> None:
        many = [citation(str(number)) for number in range(1, 61)]

        text, carried = carried_over("So [50] and [51].", many, 1)

        assert (text, len(carried)) == ("So [50] and (51).", 50)


class TestRender:
    def test_a_passage_has_a_header_and_its_text(self) -> None:
        passages = labelled([Passage("Use the script.\n", citation())], 3)

        assert render(passages, max_chars=1000) == (
            "[3] Handbook › Backups › Restore (lines 40-52)\nUse the script."
        )

    def test_the_whole_stays_within_its_cap(self) -> None:
        passages = labelled([Passage("长" * 5000, citation())] * 7, 1)

        text = render(passages, max_chars=7000)

        assert 6500 < len(text) <= 7000
        assert text.count("[…]") == 7

    def test_a_name_cannot_break_out_of_its_line(self) -> None:
        odd = replace(citation("1"), document_name="a\n[2] b")

        assert "\n" not in header(odd)

    def test_nothing_found_is_no_text(self) -> None:
        assert render([], max_chars=10) == ""


class TestPassagesIn:
    def test_it_gives_back_what_was_rendered(self) -> None:
        passages = labelled(
            [Passage("One.\n\n[2] is no header here", citation()), Passage("Two.", citation())], 1
        )

        found = passages_in(
            render(passages, max_chars=1000), [passage.citation for passage in passages]
        )

        assert found == list(passages)

    def test_a_passage_that_was_cut_away_is_left_out(self) -> None:
        assert passages_in("something else", [citation("1")]) == []


class TestMarks:
    @pytest.mark.parametrize(
        ("text", "labels"),
        [
            ("On b1 [1].", ["1"]),
            ("On b1[2][1].", ["2", "1"]),
            ("Both [1, 3] agree", ["1", "3"]),
            ("See [2-4].", ["2", "3", "4"]),
            ("备份在 b1【1】，另见【2、3】。", ["1", "2", "3"]),
            ("no marks (1)", []),
            ("code `a[1]` and\n```\nb[2]\n```\nbut [3]", ["3"]),
            ("open fence\n```\nb[2]", []),
            ("[1-999999] is no range", []),
            ("[] [ ] [,]", []),
        ],
    )
    def test_labels_in_the_order_of_the_text(self, text: str, labels: list[str]) -> None:
        assert marks(text) == labels


class TestAnswerCitations:
    def test_marked_ones_come_in_the_order_of_the_text(self) -> None:
        found = [citation(label, chunk=label) for label in ("1", "2", "6")]

        cited, basis = answer_citations("Six [6], then one [1], six again [6]; [9]?", found)

        assert [each.label for each in cited] == ["6", "1"]
        assert basis == "marked"

    def test_without_marks_all_come_by_score_each_chunk_once(self) -> None:
        found = [
            citation("1", chunk="x", score=0.2),
            citation("2", chunk="y", score=0.9),
            citation("6", chunk="x", score=0.4),
        ]

        cited, basis = answer_citations("An answer.", found)

        assert [each.label for each in cited] == ["2", "6"]
        assert basis == "retrieved"

    def test_without_passages_there_is_nothing_to_cite(self) -> None:
        assert answer_citations("Hello [1].", []) == ((), None)
