"""How documents are cut."""

from dataclasses import dataclass
from enum import Enum

from services.common.errors import InvalidArgumentError

DEFAULT_MAX_TOKENS = 256
"""Budget of a piece with its path: with about 3.5 characters of English or 1.9 of mixed Chinese a
token, measured with the bundled model, 900 and 480 characters; such pieces retrieve best."""

DEFAULT_OVERLAP_TOKENS = 0
"""The heading path on every piece says what an overlap would; repeated text only costs vectors."""

PATH_SHARE = 3
"""A path may take one part in so many of the budget once its section needs splitting."""

MAX_CHARS_PER_TOKEN = 32
"""A piece is never longer than its budget at this rate, whatever a tokenizer makes of blanks."""


class EmbedField(Enum):
    """What of a section is embedded."""

    TITLE = "TITLE"
    TITLE_AND_CONTENT = "TITLE_AND_CONTENT"


@dataclass(frozen=True, slots=True)
class ChunkPolicy:
    """How long a piece may be, in the embedding model's tokens.

    Attributes:
        max_tokens: of a piece together with its heading path.
        overlap_tokens: how much of a piece's end is repeated at the start of the next one of the
            same section, in whole blocks, items, lines or sentences.

    Raises:
        InvalidArgumentError: a number is out of bounds, or the overlap not under half the budget.
    """

    max_tokens: int = DEFAULT_MAX_TOKENS
    overlap_tokens: int = DEFAULT_OVERLAP_TOKENS

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise InvalidArgumentError.of_field("chunking.max_tokens", "must be at least 1")
        if self.overlap_tokens < 0:
            raise InvalidArgumentError.of_field("chunking.overlap_tokens", "must not be negative")
        if self.overlap_tokens * 2 >= self.max_tokens and self.overlap_tokens:
            raise InvalidArgumentError.of_field(
                "chunking.overlap_tokens", "must be less than half of max_tokens"
            )
