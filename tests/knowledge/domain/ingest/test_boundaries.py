import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from services.knowledge.domain.ingest.boundaries import Cut, cut_code, cut_prose, sentence_starts
from tests.knowledge.domain.ingest.markdown_texts import long_texts


def halves(text: str, limit: int) -> tuple[str, str, Cut]:
    place = cut_prose(text, 0, limit)
    return text[: place.end], text[place.following :], place.cut


class TestCutProse:
    @pytest.mark.parametrize(
        ("text", "limit", "expected"),
        [
            ("One two. Three four.", 15, ("One two.", "Three four.", Cut.SENTENCE)),
            ("One! Two? Three.", 12, ("One! Two?", "Three.", Cut.SENTENCE)),
            ('He said "Go." Then left.', 18, ('He said "Go."', "Then left.", Cut.SENTENCE)),
            ("第一句。第二句！第三句", 9, ("第一句。第二句！", "第三句", Cut.SENTENCE)),
            ("“好。”他说。再见", 8, ("“好。”他说。", "再见", Cut.SENTENCE)),
            ("一；二……三", 5, ("一；二……", "三", Cut.SENTENCE)),
            ("para one\n\npara two", 14, ("para one", "para two", Cut.SENTENCE)),
            ("**Bold end.** Next one", 18, ("**Bold end.**", "Next one", Cut.SENTENCE)),
            ("see e.g. the manual, please", 24, ("see e.g. the manual,", "please", Cut.CLAUSE)),
            ("version 3.14 is out now", 16, ("version 3.14 is", "out now", Cut.WORD)),
            ("costs 1,000 euros now", 15, ("costs 1,000", "euros now", Cut.WORD)),
            ("first line\nsecond line", 16, ("first line", "second line", Cut.CLAUSE)),
            ("很长的一句话，后面还有话", 10, ("很长的一句话，", "后面还有话", Cut.CLAUSE)),
            ("没有标点的文字", 4, ("没有标点", "的文字", Cut.WORD)),
            ("没有标点，的", 4, ("没有标", "点，的", Cut.WORD)),
            ("word " * 4, 12, ("word word", "word word ", Cut.WORD)),
            ("mixed中文text", 6, ("mixed中", "文text", Cut.WORD)),
            ("unbreakable", 4, ("unbr", "eakable", Cut.CHARACTER)),
            ("e\u0301e\u0301e\u0301", 3, ("e\u0301", "e\u0301e\u0301", Cut.CHARACTER)),
            ("e\u0301e\u0301", 1, ("e\u0301", "e\u0301", Cut.CHARACTER)),
            ("a.  \u3000 B", 6, ("a.", "B", Cut.SENTENCE)),
            ("see `a. B c` and d", 10, ("see `a. B", "c` and d", Cut.WORD)),
            ("go [a. B](/u) now, ok", 19, ("go [a. B](/u) now,", "ok", Cut.CLAUSE)),
        ],
    )
    def test_at_the_best_place(self, text: str, limit: int, expected: tuple[str, str, Cut]) -> None:
        assert expected == halves(text, limit)

    def test_a_good_place_too_near_the_start_is_passed_over(self) -> None:
        assert halves("No. " + "word " * 20, 60)[2] is Cut.WORD

    def test_a_space_that_carries_an_accent_is_not_dropped(self) -> None:
        assert halves("End. \u0301 x", 6) == ("End.", " \u0301 x", Cut.SENTENCE)

    @settings(max_examples=150, deadline=None, derandomize=True)
    @given(
        long_texts.filter(lambda text: len(text.strip()) > 2), st.integers(1, 120), st.booleans()
    )
    def test_loses_nothing_but_white_space_and_tears_nothing(
        self, text: str, limit: int, code: bool
    ) -> None:
        text = text.strip()
        cut = cut_code if code else cut_prose
        place = cut(text, 0, min(limit, len(text) - 1))
        borders = {cluster.end() for cluster in regex.finditer(r"\X", text)}

        assert 0 < place.end <= place.following <= len(text)
        assert text[place.end : place.following].strip() == ""
        assert place.end in borders
        assert place.following in borders
        assert place.end <= limit or place.end == min(borders)


class TestCutCode:
    @pytest.mark.parametrize(
        ("text", "limit", "first"),
        [
            ("x = compute(a, b)", 15, "x = compute(a, "),
            ("x =   1", 5, "x =  "),
            ("unbreakable", 4, "unbr"),
            ("    indented", 3, "   "),
            ("  a b", 4, "  a "),
        ],
    )
    def test_keeps_every_space(self, text: str, limit: int, first: str) -> None:
        place = cut_code(text, 0, limit)

        assert (first, text) == (text[: place.end], text[: place.end] + text[place.following :])


class TestSentenceStarts:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("One. Two. Three.", ["Two. Three.", "Three."]),
            ("一。二！", ["二！"]),
            ("One only.", []),
            ("", []),
        ],
    )
    def test_are_found(self, text: str, expected: list[str]) -> None:
        assert expected == [text[start:] for start in sentence_starts(text, 0, len(text))]
