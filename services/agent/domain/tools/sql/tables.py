"""What is known of a database, and what a query brings, as a model reads it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from services.agent.domain.tools.outside import visible

MOST_TABLES: Final = 50
MOST_COLUMNS: Final = 60
_MOST_CHARS: Final = 12_000
_MOST_COMMENT_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, or of a result.

    Attributes:
        name: as it is.
        type: as the database names it, such as "integer".
        comment: what its owner says of it.
    """

    name: str
    type: str
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table or view that can be read.

    Attributes:
        name: with its schema and quotes where they are needed, as it stands in a query.
        columns: those that can be read, in order.
        comment: what its owner says of it.
    """

    name: str
    columns: tuple[Column, ...]
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Rows:
    """What a query brings.

    Attributes:
        columns: in order.
        rows: a text for each column; None where there is no value. Long ones are cut.
        whole: whether these are all rows.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[str | None, ...], ...]
    whole: bool


def described(tables: Sequence[Table]) -> str:
    """The tables with their columns, one a line; those that find no room are counted."""
    lines, room = list[str](), _MOST_CHARS
    for table in tables[:MOST_TABLES]:
        line = _described(table)
        room -= len(line)
        if room < 0:
            break
        lines.append(line)
    left = len(tables) - len(lines)
    if left:
        lines.append(f"- and {left} more; information_schema.columns tells of them")
    return "\n".join(lines)


def rendered(result: Rows) -> str:
    """The rows as a table of Markdown, with the types of their columns."""
    if not result.columns:
        return f"({_count(len(result.rows))}, without columns)"
    head = " | ".join(f"{_cell(each.name)} ({each.type})" for each in result.columns)
    line = "|".join("---" for _ in result.columns)
    body = [f"| {' | '.join(_cell(value) for value in row)} |" for row in result.rows]
    count = f"({_count(len(result.rows))})"
    if not result.whole:
        count = f"(the first {_count(len(result.rows))}; there are more)"
    return "\n".join([f"| {head} |", f"|{line}|", *body, "", count])


def _described(table: Table) -> str:
    columns = ", ".join(
        f"{each.name} {each.type}{_comment(each.comment)}" for each in table.columns[:MOST_COLUMNS]
    )
    more = len(table.columns) - MOST_COLUMNS
    told = f"{columns}, and {more} more" if more > 0 else columns
    return f"- {table.name} ({told}){_comment(table.comment)}"


def _comment(comment: str) -> str:
    text = " ".join(visible(comment)[0].split())
    return f" -- {text[:_MOST_COMMENT_CHARS]}" if text else ""


def _cell(value: str | None) -> str:
    if value is None:
        return "NULL"
    return value.replace("\\", "\\\\").replace("|", "\\|").replace("\r", "").replace("\n", "\\n")


def _count(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows} rows"
