"""What the commands print: tables and text for people, one JSON object a line for scripts."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from cli.plain import Plain, one_line
from services.common.status import RpcFailure
from services.common.text import json_line

EnumT = TypeVar("EnumT", bound=int)

_UNBOUNDED = 10_000


class Output:
    """Prints results on stdout and everything else on stderr.

    For scripts, stdout holds only JSON, one object a line; an error is an object with the single
    field `error`.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.notes = Console(stderr=True, highlight=False, emoji=False)
        self._results = Console(highlight=False, emoji=False)
        if not self._results.is_terminal:
            # A pipe has no width at which ids would be cut.
            self._results.width = _UNBOUNDED

    def message(self, message: Message, *, text: str) -> None:
        """One result: the message itself for scripts, `text` for people."""
        if self.as_json:
            self.record(as_dict(message))
        else:
            self.text(text)

    def record(self, record: Mapping[str, object]) -> None:
        """One JSON object on a line of its own."""
        is_utf8 = (sys.stdout.encoding or "").lower().startswith("utf")
        sys.stdout.write((json_line(record) if is_utf8 else json.dumps(record)) + "\n")
        sys.stdout.flush()

    def text(self, text: str) -> None:
        """A result as it is, without wrapping lines."""
        self._results.print(Plain(Text(text)), soft_wrap=True)

    def markdown(self, text: str) -> None:
        """A result in Markdown: formatted on a terminal, as it is elsewhere."""
        if self._results.is_terminal:
            # Without hyperlinks the address is shown, not hidden behind the link's text.
            self._results.print(Plain(Markdown(text, hyperlinks=False)))
        else:
            self.text(text)

    def table(
        self, messages: Iterable[Message], *, columns: Sequence[str], rows: Iterable[Sequence[str]]
    ) -> None:
        """A list: a JSON object for each message for scripts, a table for people."""
        if self.as_json:
            for message in messages:
                self.record(as_dict(message))
            return
        table = Table(*columns, box=None, pad_edge=False, header_style="bold")
        for row in rows:
            table.add_row(*(Text(one_line(cell)) for cell in row))
        self._results.print(Plain(table))

    def note(self, text: str) -> None:
        """Something worth knowing that is not a result."""
        self.notes.print(Plain(Text(text)), soft_wrap=True)

    def failure(self, failure: RpcFailure) -> None:
        """A call that failed: what, why, and which fields."""
        if self.as_json:
            fields = {v.field: v.description for v in failure.violations}
            self._json_error(
                failure.message, code=failure.code.name, reason=failure.reason, fields=fields
            )
        else:
            self.error(f"{failure.message} ({failure.reason or failure.code.name})")

    def error(self, text: str) -> None:
        """Something that went wrong."""
        if self.as_json:
            self._json_error(text)
        else:
            self.notes.print(Plain(Text.assemble(("error: ", "bold red"), text)), soft_wrap=True)

    def ask(self, prompt: str) -> str:
        """A line that the person types.

        Raises:
            EOFError: the input has ended.
        """
        return self.notes.input(prompt, markup=False)

    def _json_error(self, message: str, **more: object) -> None:
        self.record({"error": {"message": message, **more}})


def as_dict(message: Message) -> dict[str, object]:
    """A message as JSON-ready values, field names as in the contract."""
    return MessageToDict(message, preserving_proto_field_name=True)


def counted(number: int, thing: str) -> str:
    """A number of things in English: "1 chunk", "2 chunks"."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def word(name_of: Callable[[EnumT], str], value: EnumT, *, prefix: str) -> str:
    """The name of an enum's value in lower case; its number if this release does not know it."""
    try:
        return name_of(value).removeprefix(prefix).lower()
    except ValueError:
        return str(value)
