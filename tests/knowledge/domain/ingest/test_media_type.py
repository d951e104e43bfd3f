import pytest

from services.knowledge.domain.ingest.errors import UnsupportedMediaTypeError
from services.knowledge.domain.ingest.media_type import MediaType, Syntax, parse_media_type


def parse(declared: str, name: str = "notes.md") -> MediaType:
    return parse_media_type(declared, name=name, field="document.media_type")


class TestParseMediaType:
    @pytest.mark.parametrize(
        ("declared", "expected"),
        [
            ("text/markdown", MediaType(Syntax.MARKDOWN, None)),
            ("TEXT/Markdown", MediaType(Syntax.MARKDOWN, None)),
            ("text/x-markdown", MediaType(Syntax.MARKDOWN, None)),
            ("text/plain", MediaType(Syntax.PLAIN, None)),
            (" text/plain ; charset=gbk", MediaType(Syntax.PLAIN, "gbk")),
            ("text/markdown; charset=windows-1252", MediaType(Syntax.MARKDOWN, "windows-1252")),
            ('text/markdown; charset="utf-8"', MediaType(Syntax.MARKDOWN, "utf-8")),
            ("text/markdown;variant=GFM;Charset=big5", MediaType(Syntax.MARKDOWN, "big5")),
            ("text/markdown; charset=", MediaType(Syntax.MARKDOWN, None)),
            ("text/markdown; x-charset=big5", MediaType(Syntax.MARKDOWN, None)),
        ],
    )
    def test_type_and_charset_are_understood(self, declared: str, expected: MediaType) -> None:
        assert expected == parse(declared)

    @pytest.mark.parametrize("declared", ["", "  ", "application/octet-stream"])
    @pytest.mark.parametrize(
        ("name", "syntax"),
        [
            ("a.md", Syntax.MARKDOWN),
            ("README", Syntax.MARKDOWN),
            ("dir.txt/a.markdown", Syntax.MARKDOWN),
            ("notes.TXT", Syntax.PLAIN),
            ("logs/app.log", Syntax.PLAIN),
        ],
    )
    def test_the_name_decides_where_nothing_is_declared(
        self, declared: str, name: str, syntax: Syntax
    ) -> None:
        assert syntax is parse(declared, name).syntax

    @pytest.mark.parametrize(
        "declared", ["application/pdf", "text/html", "image/png; charset=utf-8", "markdown", "\0"]
    )
    def test_anything_else_is_refused_with_what_is_supported(self, declared: str) -> None:
        with pytest.raises(UnsupportedMediaTypeError) as caught:
            parse(declared)

        error = caught.value
        assert error.reason == "UNSUPPORTED_MEDIA_TYPE"
        assert declared.replace("\0", "\ufffd") == error.metadata["media_type"]
        assert error.metadata["supported"] == "text/markdown, text/x-markdown, text/plain"
        assert [each.field for each in error.violations] == ["document.media_type"]
