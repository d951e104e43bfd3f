"""What makes a table: GitHub Flavored Markdown 0.29 section 4.10."""

import re

_DELIMITER = re.compile(r"\|?[ \t]*+:?-++:?[ \t]*+(?:\|[ \t]*+:?-++:?[ \t]*+)*+\|?[ \t]*$")
_PIPE = re.compile(r"(?<!\\)\|")


def starts_table(header: str, delimiter: str) -> bool:
    """Whether two neighbouring lines are the header and delimiter row of a table.

    Both have the same number of cells and the header has a pipe; otherwise they are text, and the
    second may well be the underline of a heading.
    """
    delimiter = delimiter.strip(" \t")
    if not (delimiter and delimiter[0] in "|-:" and "|" in header):
        return False
    return _DELIMITER.match(delimiter) is not None and cells(header) == cells(delimiter)


def cells(row: str) -> int:
    """How many cells a row has; an escaped pipe separates none, nor do those at its two ends."""
    row = row.strip(" \t")
    pipes = [found.start() for found in _PIPE.finditer(row)]
    outer = (0 in pipes) + (len(row) - 1 in pipes and len(row) > 1)
    return len(pipes) - outer + 1
