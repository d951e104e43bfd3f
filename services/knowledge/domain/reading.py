"""Refusing at once what ingestion could not read."""

from dataclasses import dataclass

from services.knowledge.domain.ingest.decode import decode
from services.knowledge.domain.ingest.media_type import parse_media_type


@dataclass(frozen=True, slots=True)
class FieldNames:
    """What a request calls the fields of an upload, for errors.

    Attributes:
        content: path of the bytes.
        media_type: path of what declares how to read them.
    """

    content: str = "content"
    media_type: str = "media_type"


def check_readable(content: bytes, *, name: str, media_type: str, fields: FieldNames) -> None:
    """Make sure that a content can be read; slow for a large one.

    Raises:
        InvalidEncodingError: it is not text in its charset.
        UnknownCharsetError: its charset is unknown.
        UnsupportedMediaTypeError: contents of this kind cannot be read.
    """
    read_as = parse_media_type(media_type, name=name, field=fields.media_type)
    decode(
        content,
        read_as.charset,
        document=name,
        field=fields.content,
        charset_field=fields.media_type,
    )
