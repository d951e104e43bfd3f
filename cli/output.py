"""What the commands print: tables and bars for people, one JSON object a line for scripts."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from services.common.status import RpcFailure


class Output:
    """Prints results on stdout and everything else on stderr."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.console = Console(highlight=False)
        self.notes = Console(stderr=True, highlight=False)

    def message(self, message: Message, *, text: str) -> None:
        """One result: the message itself for scripts, `text` for people."""
        if self.as_json:
            self.record(as_dict(message))
        else:
            self.console.print(text, markup=False, soft_wrap=True)

    def record(self, record: Mapping[str, object]) -> None:
        """One JSON object on a line of its own."""
        sys.stdout.write(json.dumps(record, ensure_ascii=False) + "\n")
        sys.stdout.flush()

    def table(
        self, messages: Iterable[Message], *, columns: Sequence[str], rows: Iterable[Sequence[str]]
    ) -> None:
        """A list: a JSON object for each message for scripts, a table for people."""
        if self.as_json:
            for message in messages:
                self.record(as_dict(message))
            return
        table = Table(*columns, box=None, header_style="bold")
        for row in rows:
            table.add_row(*(escape(cell) for cell in row))
        self.console.print(table)

    def note(self, text: str) -> None:
        """Something worth knowing that is no result."""
        self.notes.print(text, markup=False, soft_wrap=True)

    def failure(self, failure: RpcFailure) -> None:
        """A call that failed: what, why, and which fields."""
        if self.as_json:
            fields = {v.field: v.description for v in failure.violations}
            self.record(
                {
                    "error": {
                        "code": failure.code.name,
                        "reason": failure.reason,
                        "message": failure.message,
                        "fields": fields,
                    }
                }
            )
            return
        self.error(f"{failure.message} ({failure.reason or failure.code.name})")

    def error(self, text: str) -> None:
        """Something that went wrong, on one line."""
        self.notes.print(f"[bold red]error:[/] {escape(text)}", soft_wrap=True)


def as_dict(message: Message) -> dict[str, object]:
    """A message as JSON-ready values, field names as in the contract."""
    return MessageToDict(message, preserving_proto_field_name=True)
