import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.knowledge.domain.ingest.errors import (
    InvalidEncodingError,
    UnknownCharsetError,
    UnsupportedMediaTypeError,
)
from services.knowledge.domain.ingest.meter import TokenCounter
from services.knowledge.domain.ingest.pieces import Piece
from services.knowledge.domain.ingest.pipeline import (
    PreparedDocument,
    chunk_document,
    prepare,
)
from services.knowledge.domain.ingest.policy import ChunkPolicy, EmbedField
from tests.knowledge.domain.ingest.markdown_texts import long_texts
from tests.knowledge.domain.ingest.pieces_check import (
    characters,
    check_pieces,
    octets,
    quarters,
    words,
)

CASES = Path(__file__).parents[3] / "cases"


class ExpectedSection(TypedDict):
    path: list[str]
    level: int
    body: str


def case_file(case: str, name: str) -> bytes:
    return (CASES / case / name).read_bytes()


def expected_sections(case: str, name: str = "") -> list[ExpectedSection]:
    expected = json.loads(case_file(case, "expected.json"))
    found: list[ExpectedSection] = (expected[name] if name else expected)["sections"]
    return found


def found_sections(document: PreparedDocument) -> list[ExpectedSection]:
    return [
        {"path": list(section.path), "level": section.level, "body": section.body}
        for section in document.sections
    ]


def joined(document: PreparedDocument, pieces: tuple[Piece, ...]) -> list[ExpectedSection]:
    """The sections put together again from their pieces; those without pieces are left out."""
    return [
        {
            "path": list(section.path),
            "level": section.level,
            "body": "\n\n".join(
                each.own_text for each in pieces if each.section_ordinal == section.ordinal
            ),
        }
        for section in document.sections
        if any(each.section_ordinal == section.ordinal for each in pieces)
    ]


OUTLINES = [
    ("01-fence-hash-comments", "input.md", ""),
    ("02-setext-and-thematic-break", "input.md", ""),
    *(
        ("03-yaml-front-matter", name, name)
        for name in ("a-yaml.md", "b-dots.md", "c-rule-first.md")
    ),
    *(
        ("04-preamble-and-empty-sections", name, name)
        for name in ("a.md", "b-headings-only.md", "c-no-heading.md")
    ),
    *(("05-skipped-levels-duplicate-titles", name, name) for name in ("a.md", "b-starts-deep.md")),
    *(
        ("06-bom-crlf", name, name)
        for name in ("a-bom-crlf.md", "b-bom-front-matter.md", "c-cr-only.md")
    ),
    ("07-bytes-postgres-refuses", "nul.md", "nul.md"),
]


class TestCases:
    @pytest.mark.parametrize(("case", "name", "key"), OUTLINES)
    def test_sections_are_as_expected(self, case: str, name: str, key: str) -> None:
        document = prepare(case_file(case, name), name=name)

        assert expected_sections(case, key) == found_sections(document)

    @pytest.mark.parametrize(("case", "name", "key"), OUTLINES)
    def test_pieces_hold_every_body(self, case: str, name: str, key: str) -> None:
        document = prepare(case_file(case, name), name=name)
        pieces = chunk_document(document, ChunkPolicy(), count_tokens=quarters)
        with_body = [each for each in expected_sections(case, key) if each["body"]]

        assert with_body == [each for each in joined(document, pieces) if each["body"]]

    @pytest.mark.parametrize("name", ["a-yaml.md", "b-dots.md", "c-rule-first.md"])
    def test_front_matter_is_metadata(self, name: str) -> None:
        case = "03-yaml-front-matter"
        document = prepare(case_file(case, name), name=name)
        metadata = json.loads(case_file(case, "expected.json"))[name]["metadata"]

        assert metadata == document.metadata
        assert metadata.get("title", "Title") == document.title

    def test_front_matter_behind_a_mark_and_crlf(self) -> None:
        document = prepare(case_file("06-bom-crlf", "b-bom-front-matter.md"), name="b.md")

        assert document.metadata == {"title": "Saved by an editor on Windows"}

    @pytest.mark.parametrize("name", ["a.md", "b-headings-only.md"])
    def test_every_heading_can_be_found(self, name: str) -> None:
        document = prepare(case_file("04-preamble-and-empty-sections", name), name=name)
        for field in EmbedField:
            pieces = chunk_document(
                document, ChunkPolicy(), count_tokens=quarters, embed_field=field
            )
            embedded = "\n".join(piece.embed_text for piece in pieces)

            assert all(section.heading in embedded for section in document.sections)

    def test_bytes_of_a_code_page_are_refused_undeclared(self) -> None:
        with pytest.raises(InvalidEncodingError) as caught:
            prepare(case_file("07-bytes-postgres-refuses", "cp1252.md"), name="cp1252.md")

        assert caught.value.metadata == {"byte_offset": "5", "document": "cp1252.md"}

    def test_and_read_if_declared(self) -> None:
        case = "07-bytes-postgres-refuses"
        expected = json.loads(case_file(case, "expected.json"))["cp1252.md"]["charset windows-1252"]
        content = case_file(case, "cp1252.md")
        for charset in ("windows-1252", "cp1252"):
            media_type = f"text/markdown; charset={charset}"
            document = prepare(content, name="cp1252.md", media_type=media_type)

            assert expected["sections"] == found_sections(document)

    @pytest.mark.parametrize("budget", [200, 240, 320, 400])
    def test_a_table_over_the_budget(self, budget: int) -> None:
        case = "08-table-over-budget"
        expected = json.loads(case_file(case, "expected.json"))
        document = prepare(case_file(case, "input.md"), name="input.md")
        pieces = chunk_document(document, ChunkPolicy(budget), count_tokens=characters)
        head = f"{expected['header']}\n{expected['delimiter']}\n"
        rows: list[str] = []
        for piece in pieces:
            assert piece.heading_path == tuple(expected["path"])
            assert piece.token_count <= budget
            of_piece = [
                line for line in piece.text.split("\n") if line in expected["rows_in_order"]
            ]
            assert not of_piece or piece.text.startswith(head + of_piece[0])
            rows += of_piece

        assert expected["rows_in_order"] == rows
        assert len(pieces) >= expected["pieces_at_least"]
        assert [expected["before"] in piece.text for piece in pieces].index(True) == 0
        assert sum(expected["before"] in piece.text for piece in pieces) == 1
        assert [expected["after"] in piece.text for piece in pieces] == [
            *[False] * (len(pieces) - 1),
            True,
        ]


class TestPrepare:
    def test_lines_are_those_of_the_file(self) -> None:
        content = "\ufeff---\r\ntitle: t\r\n---\r\n\r\n# A\r\n\r\nbody\r\n".encode()
        document = prepare(content, name="a.md")
        (piece,) = chunk_document(document, ChunkPolicy(), count_tokens=len)

        assert [(each.start_line, each.end_line) for each in document.sections] == [(5, 7)]
        assert (piece.start_line, piece.end_line, piece.text) == (7, 7, "body")

    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            ("---\ntitle: Given\n---\n# First", "Given"),
            ("---\ntitle: 2024\n---\n# First", "2024"),
            ("---\ntitle: ' '\n---\n# First", "First"),
            ("---\ntitle: [a]\n---\n# First", "First"),
            ("---\ntitle: true\n---\n# First", "First"),
            ("---\ntitle: a\\\n---\n", "a\\"),
            ('---\ntitle: "two\\nlines\\0"\n---\n', "two lines\ufffd"),
            ("## Second level\n\n# *First* `level`", "First level"),
            ("#\n\n# First", "First"),
            ("> # quoted\n\ntext", "notes.md"),
            ("## Only second", "notes.md"),
            ("", "notes.md"),
        ],
    )
    def test_title(self, content: str, expected: str) -> None:
        assert expected == prepare(content.encode(), name="notes.md").title

    def test_the_name_is_storable(self) -> None:
        document = prepare(b"text", name="a\0b.md")

        assert document.title == "a\ufffdb.md"

    @pytest.mark.parametrize(
        "content",
        [b"", b"\n\n", b" \t\n", "\ufeff".encode(), "\u3000\n\xa0".encode(), b"#\n\n##\n"],
    )
    @pytest.mark.parametrize("media_type", ["text/markdown", "text/plain"])
    def test_a_blank_document_gives_no_piece(self, content: bytes, media_type: str) -> None:
        document = prepare(content, name="a.md", media_type=media_type)
        pieces = chunk_document(document, ChunkPolicy(), count_tokens=len)

        assert (pieces == ()) is (media_type == "text/markdown" or b"#" not in content)

    def test_front_matter_alone_is_blank(self) -> None:
        document = prepare(b"---\ntitle: t\n---\n", name="a.md")

        assert (document.sections, document.title) == ((), "t")

    def test_plain_text_has_no_headings_and_no_front_matter(self) -> None:
        content = b"---\na: b\n---\n\n# no heading\n\n    no code"
        document = prepare(content, name="a.txt", media_type="text/plain")

        assert (document.metadata, document.title) == ({}, "a.txt")
        assert found_sections(document) == [{"path": [], "level": 0, "body": content.decode()}]

    def test_plain_text_is_divided_between_paragraphs(self) -> None:
        content = b"one two\n\n| a |\n|---|\n\nthree four"
        document = prepare(content, name="a.txt", media_type="text/plain")
        pieces = chunk_document(document, ChunkPolicy(19), count_tokens=len)

        assert [each.text for each in pieces] == ["one two", "| a |\n|---|", "three four"]

    def test_errors_name_the_fields_of_the_request(self) -> None:
        with pytest.raises(InvalidEncodingError) as encoding:
            prepare(b"\xff", name="a.md")
        with pytest.raises(UnknownCharsetError) as charset:
            prepare(b"a", name="a.md", media_type="text/plain; charset=nope")
        with pytest.raises(UnsupportedMediaTypeError) as media_type:
            prepare(b"a", name="a.md", media_type="image/png")

        named = [each.value.violations[0].field for each in (encoding, charset, media_type)]
        assert named == ["content", "media_type", "media_type"]

    def test_a_given_title_leads_where_there_is_no_heading(self) -> None:
        document = prepare(b"---\ntitle: Larch\n---\nIt is a tree.", name="a.md")
        (piece,) = chunk_document(document, ChunkPolicy(), count_tokens=len)

        assert (piece.embed_text, piece.text) == ("Larch\nIt is a tree.", "It is a tree.")


class TestAnyDocument:
    @settings(max_examples=300, deadline=None, derandomize=True)
    @given(
        long_texts,
        st.sampled_from([1, 2, 5, 16, 40, 100, 256]),
        st.floats(0, 0.49),
        st.sampled_from([characters, words, quarters, octets]),
        st.sampled_from(EmbedField),
        st.sampled_from(["text/markdown", "text/plain"]),
    )
    def test_nothing_is_lost_torn_blank_or_over_the_budget(
        self,
        text: str,
        max_tokens: int,
        overlap: float,
        count_tokens: TokenCounter,
        embed_field: EmbedField,
        media_type: str,
    ) -> None:
        policy = ChunkPolicy(max_tokens + 2, int((max_tokens - 1) * overlap))
        document = prepare(text.encode(), name="a.md", media_type=media_type)

        pieces = chunk_document(
            document, policy, count_tokens=count_tokens, embed_field=embed_field
        )

        check_pieces(document, pieces, policy, count_tokens=count_tokens)

    @settings(max_examples=100, deadline=None, derandomize=True)
    @given(st.text(max_size=300), st.sampled_from([2, 7, 30]))
    def test_whatever_characters_it_has(self, text: str, max_tokens: int) -> None:
        document = prepare(text.encode("utf-8", "replace"), name="a.md")
        policy = ChunkPolicy(max_tokens)

        pieces = chunk_document(document, policy, count_tokens=characters)

        check_pieces(document, pieces, policy, count_tokens=characters)

    @settings(max_examples=30, deadline=None, derandomize=True)
    @given(long_texts)
    def test_again_gives_the_same(self, text: str) -> None:
        def cut() -> tuple[Piece, ...]:
            document = prepare(text.encode(), name="a.md")
            return chunk_document(document, ChunkPolicy(50, 10), count_tokens=quarters)

        assert cut() == cut()

    def test_threads_give_the_same(self) -> None:
        texts = [
            f"# T{n}\n\n" + "A sentence. 一句话。" * 40 + "\n\n| a |\n|---|\n" + f"| {n} |\n" * 60
            for n in range(6)
        ]

        def cut(text: str) -> tuple[Piece, ...]:
            document = prepare(text.encode(), name="a.md")
            return chunk_document(document, ChunkPolicy(60, 10), count_tokens=quarters)

        alone = [cut(text) for text in texts]
        with ThreadPoolExecutor(3) as pool:
            assert alone * 3 == list(pool.map(cut, texts * 3))


class TestDefaultPolicy:
    @pytest.mark.parametrize(
        ("sentence", "chars_per_token", "low", "high"),
        [
            ("The quick brown fox jumps over the lazy dog near the river bank. ", 4, 800, 1024),
            ("The quick brown fox jumps over the lazy dog near the river bank. ", 3.5, 700, 900),
            ("敏捷的棕色狐狸跳过了河边那只懒惰的狗。", 1.5, 300, 390),
            ("敏捷的 `fox` 跳过了 river 河边那只 lazy 的狗。", 1.9, 400, 490),
        ],
    )
    def test_pieces_are_as_long_as_retrieves_best(
        self, sentence: str, chars_per_token: float, low: int, high: int
    ) -> None:
        document = prepare(f"# Heading\n\n{sentence * 100}".encode(), name="a.md")
        pieces = chunk_document(
            document,
            ChunkPolicy(),
            count_tokens=lambda text: round(len(text) / chars_per_token),
        )
        lengths = sorted(len(piece.text) for piece in pieces)

        assert low <= lengths[len(lengths) // 2] <= high


class TestHostileDocuments:
    @pytest.mark.parametrize(
        "text",
        [
            "# h\n\ntext\n\n" * 20_000,
            "# " + "word " * 100_000 + "\n\n" + "## x\n\nbody\n\n" * 500,
            "汉字" * 300_000,
            "a" * 500_000,
            " " * 300_000 + "a",
            "🇨🇳" * 30_000,
            "e" + "\u0301" * 100_000,
            "- " * 40_000 + "a",
            "\n".join("  " * n + f"- item {n} of many" for n in range(300)),
            "> " * 10_000 + "x",
            "| a | b |\n|---|---|\n" + "| some | cells |\n" * 20_000,
            "|" + " a |" * 20_000 + "\n|" + "---|" * 20_000 + "\n|" + " b |" * 20_000,
            "```\n" + "x = 1\n" * 40_000 + "```",
            "```\n" + "x" * 300_000,
            "- item\n" + "\n  paragraph of words\n" * 10_000,
            "[" * 50_000 + "]" * 50_000,
            "# " + "[a](" * 10_000,
        ],
        ids=lambda text: repr(text[:10]),
    )
    def test_are_divided_in_linear_time_without_loss(self, text: str) -> None:
        begin = time.process_time()
        document = prepare(text.encode(), name="a.md")

        pieces = chunk_document(document, ChunkPolicy(), count_tokens=quarters)

        assert time.process_time() - begin < 15
        assert all(piece.token_count <= 256 for piece in pieces)
        assert "".join(text.split()).count("a") <= sum(
            (piece.text + "".join(piece.heading_path)).count("a") for piece in pieces
        )
