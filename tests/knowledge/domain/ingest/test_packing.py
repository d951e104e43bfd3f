import pytest

from services.knowledge.domain.ingest.meter import Meter
from services.knowledge.domain.ingest.nodes import Body
from services.knowledge.domain.ingest.packing import Packer
from services.knowledge.domain.ingest.parse import parse_blocks
from services.knowledge.domain.ingest.parts import block_nodes


def pack(text: str, budget: int, *, prefix: str = "", overlap: int = 0) -> list[str]:
    """The texts of the stretches, by characters."""
    body = Body(text)
    nodes = block_nodes(body, parse_blocks(list(body.lines)), body_line=1)
    packer = Packer(body, nodes, prefix=prefix, meter=Meter(len, budget), overlap_tokens=overlap)
    texts = [stretch.text(body) for stretch in packer.stretches()]
    assert all(len(prefix + each) <= budget for each in texts)
    return texts


class TestBlocks:
    def test_are_put_together_while_they_fit(self) -> None:
        assert pack("one\n\ntwo\n\nthree\n\nfour", 15) == ["one\n\ntwo", "three\n\nfour"]

    def test_the_prefix_counts(self) -> None:
        assert pack("one\n\ntwo", 8) == ["one\n\ntwo"]
        assert pack("one\n\ntwo", 8, prefix="p") == ["one", "two"]

    def test_a_block_that_fits_a_piece_stays_whole(self) -> None:
        text = "short\n\n" + "A sentence. " * 4 + "End."

        assert pack(text, 55) == ["short", "A sentence. " * 4 + "End."]

    def test_a_long_one_begins_in_a_piece_that_is_nearly_empty(self) -> None:
        text = "Intro.\n\n" + "A sentence of words. " * 8 + "End."

        first = pack(text, 80)[0]

        assert first == "Intro.\n\nA sentence of words. A sentence of words. A sentence of words."

    def test_but_not_in_one_that_is_half_full(self) -> None:
        text = "An introduction of half a piece or so.\n\n" + "A sentence of words. " * 8

        assert pack(text, 70)[0] == "An introduction of half a piece or so."

    def test_a_small_rest_is_shared_evenly(self) -> None:
        text = "\n\n".join(["ten chars."] * 7)

        assert [len(each) for each in pack(text, 72)] == [46, 34]

    def test_a_sentence_that_announces_goes_with_what_it_announces(self) -> None:
        text = f"{'word ' * 12}end.\n\nDo this:\n\n- {'step ' * 6}\n\n{'word ' * 12}"

        assert pack(text, 80)[1].startswith("Do this:\n\n- step")


class TestLists:
    def test_come_apart_between_items(self) -> None:
        assert pack("- one\n- two\n- three\n- four", 13) == [
            "- one\n- two",
            "- three",
            "- four",
        ]

    def test_a_long_item_comes_apart_inside(self) -> None:
        text = "- one\n\n  second paragraph\n- two"

        assert pack(text, 20) == ["- one", "  second paragraph", "- two"]


class TestTables:
    TEXT = "Before.\n\n| a | b |\n|---|---|\n| 1 | x |\n| 2 | y |\n| 3 | z |\n\nAfter."

    def test_every_piece_with_rows_begins_with_the_header(self) -> None:
        assert pack(self.TEXT, 40) == [
            "Before.",
            "| a | b |\n|---|---|\n| 1 | x |\n| 2 | y |",
            "| a | b |\n|---|---|\n| 3 | z |\n\nAfter.",
        ]

    def test_a_header_that_leaves_no_room_is_not_repeated(self) -> None:
        text = "| heading one | heading two |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |"

        assert pack(text, 50) == [
            "| heading one | heading two |\n|---|---|\n| 1 | 2 |",
            "| 3 | 4 |",
        ]

    def test_a_long_row_is_divided_below_the_header(self) -> None:
        text = "| a |\n|---|\n| first sentence. Second sentence. Third one |"

        assert pack(text, 40) == [
            "| a |\n|---|\n| first sentence.",
            "| a |\n|---|\nSecond sentence. Third one |",
        ]


class TestFences:
    def test_every_piece_is_fenced(self) -> None:
        text = "Run:\n\n```sh\nfirst --line\nsecond --line\nthird --line\n```\n\nDone."

        assert pack(text, 40) == [
            "Run:\n\n```sh\nfirst --line\n```",
            "```sh\nsecond --line\n```",
            "```sh\nthird --line\n```\n\nDone.",
        ]

    def test_blank_lines_are_the_best_places(self) -> None:
        text = "```\na = 1\nb = 2\n\nc = 3\nd = 4\n```"

        assert pack(text, 30) == ["```\na = 1\nb = 2\n```", "```\nc = 3\nd = 4\n```"]

    def test_indentation_is_kept(self) -> None:
        text = "```\ndef f():\n    first()\n\n    second()\n```"

        assert pack(text, 32) == ["```\ndef f():\n    first()\n```", "```\n    second()\n```"]

    def test_a_long_line_is_cut_without_losing_a_space(self) -> None:
        text = "```\nx =  alpha  + beta  + gamma\n```"

        pieces = pack(text, 24)

        assert "".join(each[4:-4] for each in pieces) == "x =  alpha  + beta  + gamma"


class TestProse:
    def test_comes_apart_between_sentences(self) -> None:
        text = "The first one is long. The second is long. The third is long, the fourth too."

        assert pack(text, 48) == [
            "The first one is long. The second is long.",
            "The third is long, the fourth too.",
        ]

    def test_of_ideographs_too(self) -> None:
        assert pack("第一句话。第二句话。第三句话。第四句话", 11) == [
            "第一句话。第二句话。",
            "第三句话。第四句话",
        ]

    def test_a_word_longer_than_the_budget_is_cut_between_characters(self) -> None:
        pieces = pack("e\u0301" * 5, 5)

        assert "".join(pieces) == "e\u0301" * 5
        assert {"e\u0301", "e\u0301e\u0301"} == set(pieces)

    def test_a_character_longer_than_the_budget_is_kept_whole(self) -> None:
        family = "👩‍👩‍👧"
        body = Body(f"a{family}b")
        nodes = block_nodes(body, parse_blocks(list(body.lines)), body_line=1)
        packer = Packer(body, nodes, prefix="", meter=Meter(len, 3), overlap_tokens=0)

        assert [each.text(body) for each in packer.stretches()] == ["a", family, "b"]


class TestBlank:
    @pytest.mark.parametrize("text", ["\u3000\n\na", "a\n\n\u3000", "\xa0\n\n\u2028"])
    def test_is_no_piece(self, text: str) -> None:
        assert [each.strip() for each in pack(text, 2)] == ["a"] * ("a" in text)


class TestOverlap:
    def test_repeats_the_end_of_the_piece_before(self) -> None:
        text = "The first one is long. Two is short. The third is long. The fourth is as long."

        assert pack(text, 60, overlap=20) == [
            "The first one is long. Two is short. The third is long.",
            "The third is long. The fourth is as long.",
        ]

    def test_gives_way_to_what_would_not_fit_beside_it(self) -> None:
        text = "One. Two.\n\nA whole block that fills it."

        assert pack(text, 30, overlap=10) == ["One. Two.", "A whole block that fills it."]

    def test_inside_a_table_repeats_rows_below_the_header(self) -> None:
        text = "| a |\n|---|\n" + "\n".join(f"| {n} |" for n in range(5))

        assert pack(text, 30, overlap=6)[1] == "| a |\n|---|\n| 2 |\n| 3 |\n| 4 |"
