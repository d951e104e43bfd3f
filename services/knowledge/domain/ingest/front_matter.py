"""YAML front matter: taken off before parsing, or Markdown reads it as a rule and a heading.

CommonMark knows no front matter. The block is recognised as Jekyll, Hugo and pandoc do: `---` on
the very first line, the next line not blank, closed by `---` or `...`, and a YAML mapping in
between. Everything else, a document that merely starts with a rule above all, is text.
"""

import datetime as dt
import math
import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

import yaml

from services.common.text import Json, clean

MAX_CHARS = 32 * 1024
MAX_DEPTH = 32
MAX_ALIASES = 20
MAX_VALUES = 10_000

_OPEN = re.compile(r"---[ \t]*\n(?![ \t]*\n)")
_CLOSE = re.compile(r"^(?:---|\.\.\.)[ \t]*$", re.MULTILINE)
_SAFE_INTEGER = 2**53


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """What stood before the text.

    Attributes:
        metadata: the values, JSON-safe: dates as ISO strings, keys as strings, no U+0000.
        line_count: how many source lines the block takes, its fences included; 0 without one.
    """

    metadata: dict[str, Json] = field(default_factory=dict)
    line_count: int = 0


class _UnreadableError(Exception):
    """The block is no mapping that JSON can hold."""


def read_front_matter(text: str) -> FrontMatter:
    """Read the block at the start of a normalised text, if there is one.

    A block that is not readable YAML, not a mapping, or over the bounds above is not front matter.
    """
    opened = _OPEN.match(text)
    if not opened:
        return FrontMatter()
    closed = _CLOSE.search(text, opened.end(), opened.end() + MAX_CHARS)
    if not closed or closed.end() not in (len(text), text.find("\n", closed.start())):
        return FrontMatter()
    try:
        metadata = _load(text[opened.end() : closed.start()])
    except (yaml.YAMLError, _UnreadableError):
        return FrontMatter()
    return FrontMatter(metadata, text.count("\n", 0, closed.end()) + 1)


def _load(source: str) -> dict[str, Json]:
    loader = _Loader(source)
    try:
        value = loader.get_single_data()
    finally:
        loader.dispose()
    if not isinstance(value, dict):
        raise _UnreadableError
    budget = iter(range(MAX_VALUES))
    return {key: _json(item, budget) for key, item in value.items()}


class _Loader(yaml.SafeLoader):
    """The safe loader with bounds; a scalar that does not fit its type stays as it is written."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self._aliases = 0
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._aliases += self.check_event(yaml.AliasEvent)
        self._depth += 1
        if self._aliases > MAX_ALIASES or self._depth > MAX_DEPTH:
            raise _UnreadableError
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Hashable, object]:
        """A mapping whose keys stay as they are written: `on`, `2024` and `1` are names here."""
        self.flatten_mapping(node)
        return {self._key(key): self.construct_object(item, deep=deep) for key, item in node.value}

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise _UnreadableError
        return clean(node.value)

    def as_written(self, node: yaml.ScalarNode) -> object:
        """The value of a number, date or boolean, or its text if there is no such value."""
        construct = yaml.SafeLoader.yaml_constructors[node.tag]
        try:
            value = construct(self, node)
        except (ArithmeticError, AttributeError, LookupError, ValueError):
            return node.value
        too_large = isinstance(value, int) and abs(value) > _SAFE_INTEGER
        return node.value if too_large else value


for _name in ("bool", "float", "int", "timestamp"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_name}", _Loader.as_written)


def _json(value: object, budget: Iterator[int], *, depth: int = 0) -> Json:
    """A YAML value as JSON has it, spending one of the budget on each value in it."""
    if next(budget, None) is None or depth > MAX_DEPTH:
        raise _UnreadableError
    match value:
        case None | bool() | int():
            return value
        case str():
            return clean(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case dt.date():
            return value.isoformat()
        case dict():
            return {key: _json(item, budget, depth=depth + 1) for key, item in value.items()}
        case list():
            return [_json(item, budget, depth=depth + 1) for item in value]
        case set():
            return _json(sorted(value, key=str), budget, depth=depth)
        case _:
            raise _UnreadableError
