"""Why an upload cannot be read."""

from collections.abc import Sequence

from services.common.errors import FieldViolation, InvalidArgumentError


class InvalidEncodingError(InvalidArgumentError):
    """The content is not text in the charset it is declared to have.

    Attributes:
        byte_offset: of the first byte, from 0, that does not decode.
        document: the document's name.
        charset: what the bytes were read as.
    """

    reason = "INVALID_ENCODING"

    def __init__(self, *, field: str, document: str, charset: str, byte_offset: int) -> None:
        self.byte_offset = byte_offset
        self.document = document
        self.charset = charset
        description = (
            f"byte {byte_offset} is not {charset}; if it is other text, declare its charset"
        )
        super().__init__(
            f"{document}: {description}",
            metadata={"byte_offset": str(byte_offset), "document": document},
            violations=[FieldViolation(field, description)],
        )


class UnknownCharsetError(InvalidArgumentError):
    """The declared charset is none that text can be read in."""

    def __init__(self, *, field: str, charset: str) -> None:
        self.charset = charset
        description = f"unknown charset {charset!r}"
        super().__init__(f"{field}: {description}", violations=[FieldViolation(field, description)])


class UnsupportedMediaTypeError(InvalidArgumentError):
    """Documents of this kind cannot be read."""

    reason = "UNSUPPORTED_MEDIA_TYPE"

    def __init__(self, *, field: str, media_type: str, supported: Sequence[str]) -> None:
        self.media_type = media_type
        listing = ", ".join(supported)
        description = f"{media_type!r} cannot be read; supported: {listing}"
        super().__init__(
            f"{field}: {description}",
            metadata={"media_type": media_type, "supported": listing},
            violations=[FieldViolation(field, description)],
        )
