import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.knowledge.domain.ingest.normalise import lines_of, normalise

NO_LINE_ENDS = ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"]


class TestNormalise:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("a\r\nb\rc\nd", "a\nb\nc\nd"),
            ("\r\r\n\n\r", "\n\n\n\n"),
            ("a\r", "a\n"),
            ("\n\r", "\n\n"),
            ("\0a\0", "\ufffda\ufffd"),
            ("\ud800\udfff", "\ufffd\ufffd"),
            ("a\ufeffb", "a\ufeffb"),
            ("tab\tand  spaces ", "tab\tand  spaces "),
        ],
    )
    def test_line_ends_and_unstorable_characters(self, text: str, expected: str) -> None:
        assert expected == normalise(text)

    @pytest.mark.parametrize("char", NO_LINE_ENDS)
    def test_what_ends_no_line_stays(self, char: str) -> None:
        assert f"a{char}b" == normalise(f"a{char}b")

    @settings(max_examples=100, deadline=None, derandomize=True)
    @given(st.text(st.characters() | st.sampled_from("\r\n\0\ud800"), max_size=50))
    def test_the_result_is_storable_and_normal(self, text: str) -> None:
        once = normalise(text)

        assert once == normalise(once)
        assert not {"\r", "\0"} & set(once)
        assert once == once.encode().decode()


class TestLinesOf:
    @pytest.mark.parametrize("char", NO_LINE_ENDS)
    def test_only_lf_ends_a_line(self, char: str) -> None:
        assert [f"a{char}b", "c"] == lines_of(f"a{char}b\nc")

    @pytest.mark.parametrize(
        ("text", "expected"), [("", [""]), ("a", ["a"]), ("a\n", ["a", ""]), ("\n\n", ["", "", ""])]
    )
    def test_nothing_is_lost(self, text: str, expected: list[str]) -> None:
        assert expected == lines_of(text)
        assert text == "\n".join(lines_of(text))
