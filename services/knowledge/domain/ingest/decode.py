"""Bytes to text, strictly: a wrong byte is told with its offset, never replaced."""

import codecs

from services.knowledge.domain.ingest.errors import InvalidEncodingError, UnknownCharsetError

# A byte-order mark says what a file is more surely than a declaration does (WHATWG Encoding,
# "decode"). The longer marks come first: that of UTF-32LE begins with that of UTF-16LE.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Labels whose files are nearly always in a superset, as WHATWG Encoding section 4.2 has it, and the
# UTFs whose byte order the label leaves open.
_READ_AS = {
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "iso8859-1": "cp1252",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "utf-16": "utf-16-le",
    "utf-32": "utf-32-le",
    "utf-8-sig": "utf-8",
}
_LABELS = {"windows-874": "cp874", "windows-31j": "cp932", "x-mac-cyrillic": "mac-cyrillic"}
_TEXT_CODECS = frozenset(
    {
        *("ascii", "utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"),
        *("gb18030", "big5", "big5hkscs", "hz"),
        *("cp932", "euc_jp", "iso2022_jp", "cp949", "johab"),
        *("koi8-r", "koi8-u", "mac-roman", "mac-cyrillic", "cp437", "cp850", "cp866", "cp874"),
        *(f"iso8859-{part}" for part in (*range(2, 12), *range(13, 17))),
        *(f"cp{number}" for number in range(1250, 1259)),
    }
)


def decode(
    content: bytes,
    charset: str | None = None,
    *,
    document: str,
    field: str = "content",
    charset_field: str = "media_type",
) -> str:
    """Decode an upload and take off its byte-order mark.

    A mark at the start decides: UTF-8, UTF-16 or UTF-32 of either byte order. Without one the
    declared charset holds, and without that the content must be UTF-8. Only one leading U+FEFF is
    a mark; a second is text.

    Args:
        content: the bytes as uploaded.
        charset: the declared charset, under any of its usual labels.
        document: the document's name, for the error.
        field: request path of the content, for the error.
        charset_field: request path of the declaration, for the error.

    Raises:
        InvalidEncodingError: a byte is not text in that charset.
        UnknownCharsetError: the charset is unknown or no text encoding.
    """
    declared = _codec(charset, charset_field) if charset else "utf-8"
    mark, codec = next(
        ((mark, codec) for mark, codec in _MARKS if content.startswith(mark)), (b"", declared)
    )
    try:
        return content[len(mark) :].decode(codec)
    except UnicodeDecodeError as error:
        raise InvalidEncodingError(
            field=field,
            document=document,
            charset=charset if charset and codec == declared else codec.upper(),
            byte_offset=len(mark) + error.start,
        ) from None


def _codec(charset: str, field: str) -> str:
    """The codec behind a label, of those that turn bytes into text and nothing else."""
    label = charset.strip().lower()
    try:
        name = codecs.lookup(_LABELS.get(label, label)).name
    except (LookupError, ValueError):
        name = ""
    codec = _READ_AS.get(name, name)
    if codec not in _TEXT_CODECS:
        raise UnknownCharsetError(field=field, charset=charset)
    return codec
