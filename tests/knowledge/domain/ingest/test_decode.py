import codecs

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.common.errors import Code, FieldViolation, InvalidArgumentError
from services.knowledge.domain.ingest.decode import decode
from services.knowledge.domain.ingest.errors import InvalidEncodingError, UnknownCharsetError


def read(content: bytes, charset: str | None = None) -> str:
    return decode(content, charset, document="notes.md")


class TestUtf8:
    @pytest.mark.parametrize(
        "text", ["", "plain", "中文，标点。", "e\u0301 👩‍👩‍👧", "\u2028\x00\r\n"]
    )
    def test_is_read_without_a_declaration(self, text: str) -> None:
        assert text == read(text.encode())

    @pytest.mark.parametrize("charset", [None, "utf-8", "UTF-8", "utf8", " Utf_8 ", "utf-8-sig"])
    def test_loses_one_leading_mark_and_no_more(self, charset: str | None) -> None:
        content = codecs.BOM_UTF8 * 2 + b"a" + codecs.BOM_UTF8

        assert read(content, charset) == "\ufeffa\ufeff"

    @pytest.mark.parametrize(
        ("content", "offset"),
        [
            (b"# Caf\xe9 menu", 5),
            (b"\xff", 0),
            (b"ok \x96 dash", 3),
            ("中文".encode()[:-1], 3),
            (b"surrogate \xed\xa0\x80", 10),
            (b"overlong \xc0\xaf", 9),
            (b"too high \xf4\x90\x80\x80", 9),
            (codecs.BOM_UTF8 + b"a\xff", 4),
        ],
    )
    def test_a_wrong_byte_is_told_with_its_offset(self, content: bytes, offset: int) -> None:
        with pytest.raises(InvalidEncodingError) as caught:
            read(content)

        assert offset == caught.value.byte_offset

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(st.binary(max_size=40))
    def test_other_bytes_are_refused_and_never_replaced(self, content: bytes) -> None:
        try:
            text = read(content)
        except InvalidEncodingError:
            return

        marked = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        assert marked or text.encode() == content.removeprefix(codecs.BOM_UTF8)


class TestByteOrderMark:
    @pytest.mark.parametrize(
        ("mark", "codec"),
        [
            (codecs.BOM_UTF16_LE, "utf-16-le"),
            (codecs.BOM_UTF16_BE, "utf-16-be"),
            (codecs.BOM_UTF32_LE, "utf-32-le"),
            (codecs.BOM_UTF32_BE, "utf-32-be"),
        ],
    )
    @pytest.mark.parametrize("charset", [None, "utf-16", "windows-1252"])
    def test_decides_whatever_is_declared(
        self, mark: bytes, codec: str, charset: str | None
    ) -> None:
        assert read(mark + "# 标题 a".encode(codec), charset) == "# 标题 a"

    def test_offsets_count_from_the_first_byte_of_the_file(self) -> None:
        with pytest.raises(InvalidEncodingError) as caught:
            read(codecs.BOM_UTF16_LE + "ab".encode("utf-16-le") + b"\x00\xd8")

        assert caught.value.byte_offset == 6
        assert caught.value.charset == "UTF-16-LE"


class TestDeclaredCharset:
    @pytest.mark.parametrize(
        ("charset", "codec", "text"),
        [
            ("windows-1252", "cp1252", "# Café menu\n\nOpen 9–17"),
            ("iso-8859-1", "cp1252", "“smart” – quotes"),
            ("latin1", "cp1252", "é"),
            ("windows-1251", "cp1251", "Привет"),
            ("koi8-r", "koi8-r", "Привет"),
            ("gb2312", "gbk", "朱镕基的镕不在 GB2312 里"),
            ("GBK", "gbk", "简体中文"),
            ("gb18030", "gb18030", "𠮷野家"),
            ("big5", "big5", "繁體中文"),
            ("Shift_JIS", "cp932", "①ひらがな"),
            ("windows-31j", "cp932", "①"),
            ("euc-jp", "euc_jp", "日本語"),
            ("iso-2022-jp", "iso2022_jp", "日本語"),
            ("euc-kr", "cp949", "똠방각하"),
            ("iso-8859-15", "iso8859-15", "10 €"),
            ("us-ascii", "ascii", "plain"),
            ("windows-874", "cp874", "ไทย"),
            ("utf-16", "utf-16-le", "no mark"),
            ("utf-16be", "utf-16-be", "no mark"),
            ("utf-32", "utf-32-le", "no mark"),
        ],
    )
    def test_is_honoured(self, charset: str, codec: str, text: str) -> None:
        assert text == read(text.encode(codec), charset)

    @pytest.mark.parametrize(
        ("content", "charset", "offset"),
        [
            (b"ab\x81", "windows-1252", 2),
            ("é".encode(), "us-ascii", 0),
            (b"a\xff\xff", "gbk", 1),
            (b"a", "utf-16", 0),
        ],
    )
    def test_bytes_it_does_not_have_are_refused(
        self, content: bytes, charset: str, offset: int
    ) -> None:
        with pytest.raises(InvalidEncodingError) as caught:
            read(content, charset)

        assert offset == caught.value.byte_offset
        assert charset == caught.value.charset

    @pytest.mark.parametrize(
        "charset",
        [
            *("x-unknown", "utf-7", "rot13", "base64", "hex", "zlib", "idna", "punycode"),
            *("unicode_escape", "raw_unicode_escape", "undefined", "mbcs", "é", "a\0b", "../x"),
            *("\ud800", "x" * 9999),
        ],
    )
    def test_an_unknown_one_is_refused_by_the_field_that_named_it(self, charset: str) -> None:
        with pytest.raises(UnknownCharsetError) as caught:
            decode(b"a", charset, document="notes.md", charset_field="document.media_type")

        assert charset == caught.value.charset
        assert [each.field for each in caught.value.violations] == ["document.media_type"]


class TestError:
    def test_it_names_the_file_the_field_and_the_byte(self) -> None:
        with pytest.raises(InvalidArgumentError) as caught:
            decode(b"# Caf\xe9", document="cp1252.md", field="document.content")

        error = caught.value
        assert Code.INVALID_ARGUMENT is error.code
        assert error.reason == "INVALID_ENCODING"
        assert error.metadata == {"byte_offset": "5", "document": "cp1252.md"}
        assert error.message.startswith("cp1252.md: byte 5 is not UTF-8")
        assert (
            FieldViolation(
                "document.content",
                "byte 5 is not UTF-8; if it is other text, declare its charset",
            ),
        ) == error.violations
