"""Reads the bytes of a page as text. Pure."""

import codecs
import re
from typing import Final

_CHARSET = re.compile(r"charset\s*=\s*[\"']?([A-Za-z0-9._:-]{1,40})", re.IGNORECASE)
_META = re.compile(
    rb"<meta\s[^>]{0,300}?charset\s*=\s*[\"']?([A-Za-z0-9._:-]{1,40})", re.IGNORECASE
)
_META_WITHIN: Final = 2048
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# What pages are written in. Python knows others, some of which take very long or run no text.
_KNOWN = re.compile(
    r"ascii|utf-8|utf-16(-le|-be)?|iso8859-\d{1,2}|cp125\d|cp874|cp866|cp932|cp949|koi8-[ru]|gbk"
    r"|gb2312|gb18030|big5(hkscs)?|euc_jp|euc_kr|shift_jis|iso2022_jp|mac-roman"
)
# A page that claims one of these means the other, as browsers take it.
_MEANT: Final = {"ascii": "cp1252", "iso8859-1": "cp1252", "gb2312": "gb18030", "gbk": "gb18030"}


def decoded(body: bytes, content_type: str) -> str:
    """The text of a page: its charset is that of its mark, its header or itself, else UTF-8.

    Args:
        body: the page; what is wrong in it becomes U+FFFD.
        content_type: the header of that name.
    """
    for mark, charset in _MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(charset, errors="replace")
    told = _CHARSET.search(content_type)
    name = told[1] if told else _told_within(body)
    return body.decode(_charset(name), errors="replace")


def _told_within(body: bytes) -> str:
    found = _META.search(body[:_META_WITHIN])
    return found[1].decode("ascii") if found else "utf-8"


def _charset(name: str) -> str:
    try:
        known = codecs.lookup(name).name
    except (LookupError, ValueError):
        return "utf-8"
    return _MEANT.get(known, known) if _KNOWN.fullmatch(known) else "utf-8"
