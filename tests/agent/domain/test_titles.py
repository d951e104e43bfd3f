import pytest

from services.agent.domain.titles import titles_of


class TestPlain:
    @pytest.mark.parametrize(
        ("text", "title"),
        [
            ("Hello", "Hello"),
            ("  What \t is\u3000it? \nMore", "What is it?"),
            ("\n\n  \nThird line", "Third line"),
            ("x" * 80, "x" * 80),
            ("x" * 81, "x" * 79 + "…"),
            ("word " * 20, ("word " * 15) + "word…"),
            (" \n ", ""),
        ],
    )
    def test_it_is_the_beginning_of_the_first_line_with_words(self, text: str, title: str) -> None:
        assert title == titles_of(text).plain

    def test_it_keeps_the_limit_of_the_contract(self) -> None:
        assert len(titles_of("\U0001f600" * 1000).plain.encode()) <= 400


class TestMasked:
    @pytest.mark.parametrize(
        ("text", "title"),
        [
            ("Write to ann@example.com", "Write to [email]"),
            ("\n给 13800138000 打电话", "给 [phone] 打电话"),
            ("x" * 70 + " 4111 1111 1111 1111", "x" * 70 + " [card]"),
            ("x" * 77 + " 4111 1111 1111 1111", "x" * 77 + " […"),
            ("no more\nthan ann@example.com", "no more"),
        ],
    )
    def test_it_holds_nothing_personal_though_it_is_cut(self, text: str, title: str) -> None:
        assert title == titles_of(text).masked
