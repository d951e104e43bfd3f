import time

import pytest

from services.knowledge.domain.ingest.front_matter import (
    MAX_ALIASES,
    MAX_CHARS,
    MAX_DEPTH,
    MAX_VALUES,
    FrontMatter,
    read_front_matter,
)

NONE = FrontMatter()


def metadata(yaml: str) -> dict[str, object]:
    front = read_front_matter(f"---\n{yaml}\n---\n")
    assert front != NONE
    return dict(front.metadata)


class TestRecognition:
    @pytest.mark.parametrize(
        ("text", "line_count"),
        [
            ("---\na: b\n---\n\n# x", 3),
            ("---\na: b\n...\n", 3),
            ("---\na: b\n---", 3),
            ("---  \na: b\n---\t\ntext", 3),
            ("---\n# comment\na: b\n---\n", 4),
            ("---\na: |\n  x\n\n  y\n---\n", 6),
            ("---\na: b\n---\n---\nc: d\n---\n", 3),
            ("---\na: 'x ---'\n---\n", 3),
        ],
    )
    def test_a_closed_mapping_at_the_very_start(self, text: str, line_count: int) -> None:
        assert line_count == read_front_matter(text).line_count

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "---",
            "---\n",
            "# x\n---\na: b\n---\n",
            "\n---\na: b\n---\n",
            " ---\na: b\n---\n",
            "----\na: b\n----\n",
            "--- a: b\n---\n",
            "---\n\na: b\n---\n",
            "---\n  \na: b\n---\n",
            "---\na: b\n",
            "---\na: b\n --- \n",
            "---\na: b\n--- end\n",
            "---\na: b\n....\n",
            "---\n---\ntext",
            "---\n# Title between rules\n---\ntext",
            "---\nA sentence.\n---\n",
            "---\n- a\n- b\n---\n",
            "---\ntitle: a: b\n---\n",
            "---\na: [b\n---\n",
            "---\na: *nowhere\n---\n",
            "---\na: !python/object:os.system x\n---\n",
            "---\na: !custom x\n---\n",
            "---\n? [a, b]\n: c\n---\n",
            "---\na: \x01\n---\n",
            "---\n!!set {a}\n---\n",
            "---\u2028a: b\n---\n",
        ],
    )
    def test_anything_else_is_text(self, text: str) -> None:
        assert read_front_matter(text) == NONE


class TestValues:
    @pytest.mark.parametrize(
        ("yaml", "expected"),
        [
            ("title: Cache settings\ntags: [ops]", {"title": "Cache settings", "tags": ["ops"]}),
            ("a: 1\nb: 1.5\nc: true\nd: ~", {"a": 1, "b": 1.5, "c": True, "d": None}),
            ("d: 2026-06-01", {"d": "2026-06-01"}),
            ("d: 2026-06-01 10:30:00", {"d": "2026-06-01T10:30:00"}),
            ("d: 2026-06-01T10:30:00+08:00", {"d": "2026-06-01T10:30:00+08:00"}),
            ("d: 2026-13-45", {"d": "2026-13-45"}),
            ("n: .nan\ni: -.inf", {"n": "nan", "i": "-inf"}),
            ("n: 12345678901234567890", {"n": "12345678901234567890"}),
            ("n: " + "9" * 5000, {"n": "9" * 5000}),
            (
                "on: a\n1: b\n2026-01-01: c\n~: d",
                {"on": "a", "1": "b", "2026-01-01": "c", "~": "d"},
            ),
            ('t: "a\\0b\\ud800c"\n"k\\0": 1', {"t": "a\ufffdb\ufffdc", "k\ufffd": 1}),
            ("s: !!set {b, a}", {"s": ["a", "b"]}),
            (
                "x: !!int none\ny: !!bool none\nz: !!timestamp none",
                {"x": "none", "y": "none", "z": "none"},
            ),
            ("base: &b {x: 1}\nd: {<<: *b, y: 2}", {"base": {"x": 1}, "d": {"x": 1, "y": 2}}),
            ("a: {b: {c: [1, {d: e}]}}", {"a": {"b": {"c": [1, {"d": "e"}]}}}),
            ("中文: 值", {"中文": "值"}),
            ("a: 1\na: 2", {"a": 2}),
        ],
    )
    def test_are_json_and_storable(self, yaml: str, expected: dict[str, object]) -> None:
        assert expected == metadata(yaml)


class TestBounds:
    def test_size(self) -> None:
        line = "key: " + "v" * 94 + "\n"
        fits = "---\n" + line * (MAX_CHARS // 100 - 1) + "---\n"
        over = "---\n" + line * (MAX_CHARS // 100 + 1) + "---\n"

        assert read_front_matter(fits) != NONE
        assert read_front_matter(over) == NONE

    def test_a_closing_line_cut_by_the_bound_does_not_close(self) -> None:
        text = "---\n" + "a: b\n".ljust(MAX_CHARS - 3, "#") + "---more\n"

        assert read_front_matter(text) == NONE

    def test_depth(self) -> None:
        assert read_front_matter("---\na: " + "[" * MAX_DEPTH + "]" * MAX_DEPTH + "\n---\n") == NONE
        assert read_front_matter("---\na: " + "[" * 9000 + "\n---\n") == NONE

    def test_number_of_values(self) -> None:
        assert read_front_matter("---\na: [" + "1," * MAX_VALUES + "]\n---\n") == NONE

    def test_aliases_of_aliases(self) -> None:
        levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]

        assert read_front_matter("---\na0: &a0 x\n" + "\n".join(levels) + "\n---\n") == NONE

    def test_merged_keys_of_merged_keys_stay_small(self) -> None:
        levels = [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 3)}]}}" for n in range(1, 7)]
        assert 3 * len(levels) <= MAX_ALIASES
        begin = time.process_time()

        read_front_matter("---\na0: &a0 {k: v}\n" + "\n".join(levels) + "\n---\n")

        assert time.process_time() - begin < 1

    def test_a_value_inside_itself(self) -> None:
        assert read_front_matter("---\na: &a [*a]\n---\n") == NONE
        assert read_front_matter("---\na: &a {b: *a}\n---\n") == NONE

    def test_the_longest_block_is_read_in_a_moment(self) -> None:
        text = "---\n" + "".join(f"k{n:04}: v\n" for n in range(MAX_CHARS // 9 - 1)) + "---\n"
        begin = time.process_time()

        assert read_front_matter(text) != NONE
        assert time.process_time() - begin < 2
