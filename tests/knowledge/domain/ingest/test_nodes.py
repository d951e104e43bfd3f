import pytest

from services.knowledge.domain.ingest.nodes import Body, Frame, Node, NodeKind, View


class TestBody:
    @pytest.mark.parametrize("text", ["", "a", "a\nbc\n\nd", "汉字\n👩‍👩‍👧\n", "a\u2028b\nc"])
    def test_lines_and_places_agree(self, text: str) -> None:
        body = Body(text)

        for number, line in enumerate(body.lines):
            assert line == body.text[body.start(number) : body.end(number)]
            assert number == body.line_at(body.start(number))
            assert number == body.line_at(body.end(number))


class TestView:
    def test_lines_keep_their_numbers(self) -> None:
        view = View(["c", "d"], first_line=2)

        assert (view[2], view[3]) == ("c", "d")


class TestNode:
    FRAME = Frame("head\n", "\ntail", 1, 5)

    @pytest.mark.parametrize(
        ("frame", "has_head", "has_tail", "expected"),
        [
            (None, True, True, ("", "")),
            (FRAME, True, True, ("", "")),
            (FRAME, False, True, ("head\n", "")),
            (FRAME, True, False, ("", "\ntail")),
            (FRAME, False, False, ("head\n", "\ntail")),
        ],
    )
    def test_a_part_knows_what_it_lacks(
        self, frame: Frame | None, has_head: bool, has_tail: bool, expected: tuple[str, str]
    ) -> None:
        node = Node(NodeKind.CODE, 1, 1, 0, 5, frame=frame, has_head=has_head, has_tail=has_tail)

        assert expected == (node.missing_head, node.missing_tail)
