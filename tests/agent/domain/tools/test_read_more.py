import re

import pytest

from services.agent.domain.chat import ToolEffect, ToolResult
from services.agent.domain.messages import Whole
from services.agent.domain.models import RunId
from services.agent.domain.tools.arguments import ArgumentsError, read_arguments
from services.agent.domain.tools.errors import FailedToolError, RetryToolError
from services.agent.domain.tools.read_more import ReadMore
from tests.agent.domain.tools.contexts import CONTEXT

TEXT = "".join(f"line {number}\n" for number in range(1000))


class Kept:
    """One result, of step 2 and place 0 of the run."""

    def __init__(self, whole: Whole) -> None:
        self._whole = whole

    async def whole(self, run_id: RunId, step: int, place: int) -> Whole | None:
        return self._whole if (run_id, step, place) == (CONTEXT.run_id, 2, 0) else None


def tool(whole: Whole | None = None) -> ReadMore:
    kept = whole or Whole(TEXT, len(TEXT), "a page")
    return ReadMore(Kept(kept), piece_chars=2000)


async def read(offset: int, whole: Whole | None = None) -> ToolResult:
    return await tool(whole).run({"result_id": "2.0", "offset": offset}, CONTEXT)


class TestReadMore:
    def test_it_reads_only_and_what_it_brings_may_be_from_outside(self) -> None:
        spec = tool().spec

        assert (spec.effect, spec.trusted, spec.idempotent) == (ToolEffect.READ_ONLY, False, True)

    async def test_piece_by_piece_the_whole_is_read(self) -> None:
        pieces, offset = list[str](), 0
        while offset < len(TEXT):
            result = await read(offset)
            pieces.append(result.text)
            offset += len(result.text)
            assert result.source == "a page"
            follows = re.search(r'"offset": (\d+)}\.$', result.note)
            assert (int(follows[1]) if follows else len(TEXT)) == offset

        assert "".join(pieces) == TEXT
        assert all(piece.endswith("\n") for piece in pieces)

    async def test_it_says_where_it_is(self) -> None:
        result = await read(len(TEXT) - 9)

        assert (result.text, result.note) == (
            "line 999\n",
            f"Characters {len(TEXT) - 9} to {len(TEXT)} of {len(TEXT)}.",
        )

    async def test_what_was_not_kept_is_said(self) -> None:
        whole = Whole("x" * 50, 80)

        assert (await read(0, whole)).note == "Characters 0 to 50 of 80. What follows was not kept."
        with pytest.raises(FailedToolError, match=r"^only the first 50 characters"):
            await read(50, whole)
        with pytest.raises(RetryToolError, match=r"^the result has only 80 characters"):
            await read(80, whole)

    async def test_there_must_be_such_a_result(self) -> None:
        with pytest.raises(RetryToolError, match=r"^this run has no cut result '1\.0'"):
            await tool().run({"result_id": "1.0", "offset": 0}, CONTEXT)

    @pytest.mark.parametrize(
        "arguments",
        [
            '{"result_id": "2.0"}',
            '{"result_id": "2", "offset": 0}',
            '{"result_id": "2.0; DROP", "offset": 0}',
            '{"result_id": "1234567.0", "offset": 0}',
            '{"result_id": "2.0", "offset": -1}',
            '{"result_id": "2.0", "offset": 0.5}',
        ],
    )
    def test_other_arguments_are_refused(self, arguments: str) -> None:
        with pytest.raises(ArgumentsError):
            read_arguments(arguments, tool().spec)
