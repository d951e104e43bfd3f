import pytest

from services.knowledge.domain.ingest.links import (
    MAX_LABEL,
    MAX_PARENTHESES,
    definitions,
    destination_end,
    label_at,
    normalise_label,
    title_end,
)


class TestDefinitions:
    @pytest.mark.parametrize(
        ("paragraph", "labels"),
        [
            ("[a]: /u", ["a"]),
            ("[a]: <>", ["a"]),
            ("[a]: </u v>", ["a"]),
            ('[a]: /u "t"', ["a"]),
            ("[a]: /u 't'", ["a"]),
            ("[a]: /u (t)", ["a"]),
            ("[a]:\n/u\n'a\ntitle'", ["a"]),
            ("[a]:/u", ["a"]),
            ("[a]: /u\n[b]: /v\n[A]: /w", ["a", "b", "a"]),
            ("[Ma ny\nWords]: /u", ["ma ny words"]),
            ("[a\\]]: /u", ["a\\]"]),
            ("[1.0.0]: https://example.org/compare/v1...v2", ["1.0.0"]),
            ("[中文]: /u", ["中文"]),
            ("[ẞ]: /u", ["ss"]),
            ("[a]: /u_(v_(w))", ["a"]),
            ("[a]: /u\\(", ["a"]),
        ],
    )
    def test_a_paragraph_of_nothing_else(self, paragraph: str, labels: list[str]) -> None:
        assert (labels, len(paragraph)) == definitions(paragraph)

    @pytest.mark.parametrize(
        ("paragraph", "labels", "rest"),
        [
            ("[a]: /u\ntext", ["a"], "text"),
            ('[a]: /u\n"t" x', ["a"], '"t" x'),
            ('[a]: /u\n"open', ["a"], '"open'),
            ("[a]: /u\n[b] no", ["a"], "[b] no"),
            ('[a]: /u "t" x', [], '[a]: /u "t" x'),
            ("[a]: /u v", [], "[a]: /u v"),
            ("[a] : /u", [], "[a] : /u"),
            ("[a]:", [], "[a]:"),
            ("[]: /u", [], "[]: /u"),
            ("[ \n]: /u", [], "[ \n]: /u"),
            ("[a[b]: /u", [], "[a[b]: /u"),
            ("[a]: <u", [], "[a]: <u"),
            ("[a]: /u(v", [], "[a]: /u(v"),
            ('[a]: <u>"t"', [], '[a]: <u>"t"'),
            ("text [a]: /u", [], "text [a]: /u"),
            (f"[{'a' * (MAX_LABEL + 1)}]: /u", [], f"[{'a' * (MAX_LABEL + 1)}]: /u"),
        ],
    )
    def test_what_follows_them_is_text(self, paragraph: str, labels: list[str], rest: str) -> None:
        assert (labels, len(paragraph) - len(rest)) == definitions(paragraph)


class TestParts:
    @pytest.mark.parametrize(
        ("text", "end"),
        [
            *(("/u", 2), ("/u rest", 2), ("<a b>", 5), ("a(b)c)", 5), ("a\\)b", 4), ("a\\ b", 2)),
            *(
                ("", None),
                (" a", None),
                ("<a", None),
                ("<a<b>", None),
                ("<a\nb>", None),
                ("(", None),
            ),
            *((")", None), ("a\x00b", 1), ("(" * MAX_PARENTHESES + ")" * MAX_PARENTHESES, 64)),
            ("(" * 33 + ")" * 33, None),
        ],
    )
    def test_destination(self, text: str, end: int | None) -> None:
        assert end == destination_end(text, 0)

    @pytest.mark.parametrize(
        ("text", "end"),
        [
            *(('"a"', 3), ("'a'", 3), ("(a)", 3), ('"a\\"b"', 6), ("'a\nb'", 5), ('""', 2)),
            *(('"a', None), ("(a(b))", None), ("a", None), ("", None)),
        ],
    )
    def test_title(self, text: str, end: int | None) -> None:
        assert end == title_end(text, 0)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [("[a]", ("a", 3)), ("[]", ("", 2)), ("[a\\[b]", ("a\\[b", 6)), ("[a", None), ("a]", None)],
    )
    def test_label(self, text: str, expected: tuple[str, int] | None) -> None:
        assert expected == label_at(text, 0)

    def test_labels_match_whatever_their_case_and_spacing(self) -> None:
        assert normalise_label(" Straße \n A") == normalise_label("STRASSE a")
