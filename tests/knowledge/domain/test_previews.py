"""What a preview says when a content cannot be cut."""

import pytest

from services.common.errors import InvalidArgumentError, ResourceExhaustedError
from services.knowledge.domain.ingest.cutting import (
    CutRequest,
    CutterDiedError,
    CutterTimeoutError,
    UncuttableError,
)
from services.knowledge.domain.ingest.errors import InvalidEncodingError
from services.knowledge.domain.ingest.policy import ChunkPolicy, EmbedField
from services.knowledge.domain.previews import Previews
from tests.knowledge.doubles import InlineCutter


def a_request(content: bytes = b"# A\n\ntext") -> CutRequest:
    """A content to cut."""
    return CutRequest(content, "a.md", "", ChunkPolicy(), EmbedField.TITLE)


class TestShow:
    async def test_gives_the_pieces(self) -> None:
        shown = await Previews(InlineCutter()).show(a_request())

        assert [piece.text for piece in shown.pieces] == ["text"]

    @pytest.mark.parametrize(
        ("error", "told"),
        [
            (CutterTimeoutError(), InvalidArgumentError),
            (UncuttableError("x"), InvalidArgumentError),
            (CutterDiedError(), ResourceExhaustedError),
        ],
    )
    async def test_translates_what_goes_wrong(
        self, error: Exception, told: type[Exception]
    ) -> None:
        cutter = InlineCutter()
        cutter.error = error

        with pytest.raises(told):
            await Previews(cutter).show(a_request())

    async def test_refuses_what_cannot_be_read(self) -> None:
        with pytest.raises(InvalidEncodingError):
            await Previews(InlineCutter()).show(a_request(b"\xff"))
