import pytest

from services.knowledge.domain.ingest.meter import Meter
from services.knowledge.domain.ingest.nodes import Body, Node
from services.knowledge.domain.ingest.overlap import Overlap, overlap_before
from services.knowledge.domain.ingest.parse import parse_blocks
from services.knowledge.domain.ingest.parts import block_nodes, parts_of


def overlap(
    text: str, max_tokens: int, *, taken: int = -1, apart: bool = False
) -> tuple[str, Overlap | None]:
    """What is repeated before the last block (or the given part) of a text; counts characters."""
    body = Body(text)
    nodes: list[Node] = block_nodes(body, parse_blocks(list(body.lines)), body_line=1)
    if apart:
        nodes = [part for node in nodes for part in parts_of(body, node) or [node]]
    before, following = nodes[:taken], nodes[taken]
    found = overlap_before(
        following, before, body=body, meter=Meter(len, 1000), max_tokens=max_tokens
    )
    return body.text[found.start : before[-1].end] if found else "", found


class TestOverlapBefore:
    @pytest.mark.parametrize(
        ("text", "max_tokens", "expected"),
        [
            ("One. Two. Three.\n\nnext", 6, "Three."),
            ("One. Two. Three.\n\nnext", 11, "Two. Three."),
            ("One. Two. Three.\n\nnext", 99, "Two. Three."),
            ("One. Two. Three.\n\nnext", 5, ""),
            ("One. Two.\n\nThree.\n\nnext", 6, "Three."),
            ("One. Two.\n\nThree.\n\nnext", 12, "Two.\n\nThree."),
            ("一。二。三。\n\n下", 4, "二。三。"),
            ("One.\n\n- a\n- b\n\nnext", 8, "- a\n- b"),
            ("One.\n\nnext", 99, ""),
            ("One. Two.\n\nnext", 0, ""),
        ],
    )
    def test_is_the_longest_end_that_fits_but_not_all(
        self, text: str, max_tokens: int, expected: str
    ) -> None:
        assert expected == overlap(text, max_tokens)[0]

    def test_whole_rows_and_the_head_again(self) -> None:
        text = "| a |\n|---|\n| 1. X |\n| 2. Y |\n| 3. Z |"

        repeated, found = overlap(text, 20, apart=True)

        assert repeated == "| 2. Y |"
        assert found == Overlap(text.index("| 2"), "| a |\n|---|\n")

    def test_nothing_of_what_stands_before_a_table_that_is_divided(self) -> None:
        text = "One. Two.\n\n| a |\n|---|\n| 1 |\n| 2 |"

        assert overlap(text, 20, taken=-2, apart=True) == ("", None)

    def test_nothing_from_inside_a_fence_for_what_follows_it(self) -> None:
        text = "```\na\nb\n```\n\nnext"

        assert overlap(text, 20, apart=True) == ("", None)
