import pytest

from services.agent.domain.tools.fetch.decoding import decoded


class TestDecoded:
    @pytest.mark.parametrize(
        ("body", "content_type", "text"),
        [
            ("grün".encode(), "text/plain", "grün"),
            ("grün".encode("latin-1"), "text/plain; charset=ISO-8859-1", "grün"),
            ("“so”".encode("cp1252"), 'text/plain; charset="iso-8859-1"', "“so”"),
            ("你好".encode("gb18030"), "text/html; charset=gb2312", "你好"),
            ("你好".encode("gbk"), "text/html;CHARSET=GBK", "你好"),
            ("こ".encode("shift_jis"), "text/plain; charset=Shift_JIS", "こ"),
            (b"\xef\xbb\xbfx", "text/plain; charset=utf-16", "x"),
            ("ü".encode("utf-16"), "text/plain", "ü"),
            ('<meta charset="big5">你'.encode("big5"), "text/html", '<meta charset="big5">你'),
            (b"\xff", "text/plain", "\ufffd"),
        ],
    )
    def test_the_charset_is_found(self, body: bytes, content_type: str, text: str) -> None:
        assert decoded(body, content_type) == text

    @pytest.mark.parametrize(
        "charset",
        ["nothing", "zip", "rot13", "unicode_escape", "idna", "punycode", "utf-7", "x\x00"],
    )
    def test_a_charset_of_no_page_is_not_used(self, charset: str) -> None:
        assert decoded(b"\\u0041+AEE-", f"text/plain; charset={charset}") == "\\u0041+AEE-"
