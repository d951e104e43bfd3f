import time

import pytest

from services.knowledge.domain.ingest.containers import MAX_DEPTH, OpenContainer


def reach(text: str, labels: set[str] | None = None) -> int:
    """How many lines of the text belong to the list or quote on its first line."""
    container = OpenContainer(set() if labels is None else labels)
    lines = text.split("\n")
    count = next((n for n, line in enumerate(lines) if not container.takes(line)), len(lines))
    container.close()
    return count


def items(text: str) -> list[int]:
    """On which of its lines the items of a list begin."""
    container = OpenContainer(set())
    for line in text.split("\n"):
        if not container.takes(line):
            break
    return container.items


class TestReach:
    @pytest.mark.parametrize(
        ("text", "count"),
        [
            ("> a\n> b\nlazy\n\nc", 3),
            ("> a\n\n> b", 1),
            ("> a\n===", 2),
            ("> a\n---", 1),
            ("> a\n# h", 1),
            ("> # h\nx", 1),
            ("> ```\nx", 1),
            ("> ```\n> x\n> ```\ny", 3),
            (">     code\nx", 1),
            ("> a\n    lazy", 2),
            ("> - a\nlazy", 2),
            ("> - a\n- b", 1),
            ("> a\n1. b", 1),
            ("> a\n2. b", 1),
            ("> a\n<b>", 2),
            ("> a\n<div>", 1),
            (">> a\n> b\nc", 3),
            (">\nx", 1),
            ("> | a |\n> |---|\nx", 2),
            ("> [a]: /u\n===", 2),
            ("   > a\n   > b", 2),
            ("> <!--\n> x\n--> y", 2),
        ],
    )
    def test_of_a_quote(self, text: str, count: int) -> None:
        assert count == reach(text)

    @pytest.mark.parametrize(
        ("text", "count"),
        [
            ("- a\n- b\nlazy\n\nc", 4),
            ("- a\n\n  b\n\nc", 4),
            ("- a\n\n\n- b", 4),
            ("- a\n* b", 1),
            ("- a\n+ b", 1),
            ("1. a\n2) b", 1),
            ("1. a\n9. b", 2),
            ("- a\n---", 1),
            ("- a\n- - -", 1),
            ("* a\n* * *", 1),
            ("- a\n  ---\n  b", 3),
            ("- a\n===", 2),
            ("- a\n  ===\nx", 2),
            ("- a\n# h", 1),
            ("- a\n  # h\nx", 2),
            ("- a\n      b\nc", 3),
            ("- ```\nx", 1),
            ("- ```\n  x\n\n  y\n  ```\nz", 5),
            ("-\n\n  b", 2),
            ("-\n  b\nc", 3),
            ("-\n\n- b\nc", 4),
            ("- a\n\n      code\nb", 3),
            ("-     code\nx", 1),
            ("- a\n - b\n  - c\n   - d\n    - e", 5),
            ("- a\n  - b\n    - c\nlazy", 4),
            ("- > a\nb\n\nc", 3),
            ("1. a\n\n   b\n  c", 4),
            ("-\ta\n\n\tb", 3),
            ("- <div>\nx", 1),
            ("- <div>\n  x\n\n  y\nz", 5),
            ("- [a]: /u\n  ===\nx", 3),
            ("- a\n\n    > q\n    lazy", 4),
            ("10. a\n\n    b\n\n   c", 4),
        ],
    )
    def test_of_a_list(self, text: str, count: int) -> None:
        assert count == reach(text)


class TestItems:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("- a\n- b\n  - c\n- d", [0, 1, 3]),
            ("1. a\n\n2. b", [0, 2]),
            ("-\n\n-\n- c", [0, 2, 3]),
            ("- a\nlazy\n- b", [0, 2]),
            ("- - a\n  - b\n- c", [0, 2]),
            ("> - a\n> - b", []),
        ],
    )
    def test_first_lines_of_the_outermost_list(self, text: str, expected: list[int]) -> None:
        assert expected == items(text)


class TestLabels:
    @pytest.mark.parametrize(
        "text",
        ["> [a]: /u", "- [a]: /u", "- x\n\n  [a]: /u", "> > - [a]:\n> >   /u", "- [a]: /u\n\nx"],
    )
    def test_definitions_inside_are_noted(self, text: str) -> None:
        labels: set[str] = set()

        reach(text, labels)

        assert labels == {"a"}

    @pytest.mark.parametrize("text", ["- `[a]: /u`", "> x\n> [a]: /u", "- ```\n  [a]: /u"])
    def test_what_is_no_definition_is_not(self, text: str) -> None:
        labels: set[str] = set()

        reach(text, labels)

        assert labels == set()


class TestDepth:
    def test_deeper_nesting_is_text(self) -> None:
        assert reach("> " * (MAX_DEPTH + 1) + "a\nlazy\n\nb") == 2

    @pytest.mark.parametrize(
        "text",
        [
            "- " * 50_000 + "a",
            ">" * 100_000,
            "\n".join(">" * 1000 + "a" for _ in range(200)),
            "\n".join("  " * n + "- x" for n in range(1000)),
            "- " * MAX_DEPTH + "a" + "\n" * 50_000,
            "* " * 50_000,
            "> a\n" + "lazy\n" * 50_000,
            "\n".join("> - " * (n % 300) + "x" for n in range(600)),
        ],
        ids=lambda text: text[:8],
    )
    def test_takes_linear_time_and_no_stack(self, text: str) -> None:
        begin = time.process_time()

        reach(text)

        assert time.process_time() - begin < 5
