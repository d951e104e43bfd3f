"""The tool that reads on in a result which was too long to be shown whole.

The whole of a cut result is kept with its call, up to a bound, so that it can be read on after a
crash and on another worker. Its id is the place of its call in the run; no other run's can be read.
"""

from collections.abc import Mapping
from typing import Final

from services.agent.domain.chat import ToolContext, ToolEffect, ToolResult, ToolSpec
from services.agent.domain.ledger import read_position
from services.agent.domain.ports import CutResults
from services.agent.domain.tools.errors import FailedToolError, RetryToolError
from services.agent.domain.tools.function import object_schema
from services.agent.domain.tools.outside import QUOTATION_CHARS
from services.agent.domain.tools.pieces import end_of_piece
from services.common.text import Json

READ_MORE: Final = "read_more"

_NOTE_CHARS: Final = 300

_SPEC = ToolSpec(
    name=READ_MORE,
    description=(
        "Reads on in a result that was cut because it was too long. Use it only if what you need "
        "may stand in the rest. Goes in: the id of the result and the offset, both as the note at "
        'the cut says them, such as {"result_id": "1.0", "offset": 31000}. Comes out: the next '
        "piece, and how to read on."
    ),
    input_schema=object_schema(
        {
            "result_id": {
                "type": "string",
                "pattern": r"^[0-9]{1,6}\.[0-9]{1,4}$",
                "description": "the id that the note at the cut names",
            },
            "offset": {
                "type": "integer",
                "minimum": 0,
                "description": "the character to go on from",
            },
        },
        ["result_id", "offset"],
    ),
    idempotent=True,
    effect=ToolEffect.READ_ONLY,
)


def how_to_go_on(result_id: str, offset: int) -> str:
    """What a model is told at a cut."""
    return f'To read on: {READ_MORE} with {{"result_id": "{result_id}", "offset": {offset}}}.'


class ReadMore:
    """The tool."""

    def __init__(self, results: CutResults, *, piece_chars: int) -> None:
        """Makes the tool.

        Args:
            results: has the wholes.
            piece_chars: how long a result may be; what is said beside a piece is part of it.
        """
        self._results = results
        self._most = max(piece_chars - QUOTATION_CHARS - _NOTE_CHARS, 1)

    @property
    def spec(self) -> ToolSpec:
        """What a model is told of it."""
        return _SPEC

    async def run(self, arguments: Mapping[str, Json], context: ToolContext) -> ToolResult:
        """The next piece.

        Raises:
            RetryToolError: there is no such result, or it ends before the offset.
            FailedToolError: what follows was not kept.
            ServiceError: the store cannot be asked.
        """
        result_id, offset = str(arguments["result_id"]), int(str(arguments["offset"]))
        whole = await self._results.whole(context.run_id, *read_position(result_id))
        if whole is None:
            raise RetryToolError(f"this run has no cut result {result_id!r}")
        text, full = whole.text, whole.full_chars
        if offset >= full:
            raise RetryToolError(f"the result has only {full} characters")
        if offset >= len(text):
            raise FailedToolError(f"only the first {len(text)} characters of the result were kept")
        end = end_of_piece(text, offset, self._most)
        note = f"Characters {offset} to {end} of {full}."
        if end < len(text):
            note += f" {how_to_go_on(result_id, end)}"
        elif end < full:
            note += " What follows was not kept."
        return ToolResult(text[offset:end], source=whole.source, note=note)
