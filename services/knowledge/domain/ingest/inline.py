"""The visible text of a heading: CommonMark 0.31.2 section 6, rendered to plain text.

mistletoe's span tokenizer is not used: it keeps code spans in a module list and the document in a
global, patches `html` for the whole process while it runs, recurses, and takes quadratic time on
brackets. This is linear in the length of the text and depends on nothing but its arguments.
"""

import re
from bisect import bisect_left
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from html.entities import html5

from services.knowledge.domain.ingest.emphasis import Delimiters, Run
from services.knowledge.domain.ingest.links import (
    MAX_LABEL,
    destination_end,
    label_at,
    normalise_label,
    skip_space,
    title_end,
)
from services.knowledge.domain.ingest.syntax import CLOSING_TAG, OPEN_TAG

_SPECIAL = re.compile(r"[\\`*_~\[\]!<&\n]")
_TICKS = re.compile(r"`+")
_ENTITY = re.compile(r"&(?:#[xX]([0-9a-fA-F]{1,6})|#([0-9]{1,7})|([A-Za-z][A-Za-z0-9]*));")
_AUTOLINK = re.compile(
    r"<([A-Za-z][A-Za-z0-9+.-]{1,31}:[^\x00-\x20\x7f<>]*+"
    r"|[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]++@[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
    r"(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*)>"
)
_TAG = re.compile(rf"{OPEN_TAG}|{CLOSING_TAG}")
_DECLARATION = re.compile(r"<![A-Za-z]")
_LINE_BREAKING = re.compile(r"[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+")
_ESCAPABLE = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_REPLACEMENT = "\ufffd"


def visible_text(content: str, labels: AbstractSet[str] = frozenset()) -> str:
    """What a reader sees of inline Markdown, on one line.

    Emphasis, links and tags leave their text, images their description, code its content; escapes
    and entities are resolved; a line break is a space.

    Args:
        content: the raw content, each line without the white space around it.
        labels: the normalised labels of the document's link reference definitions.
    """
    text = _Inline(content, labels).read() if _SPECIAL.search(content) else content
    return _LINE_BREAKING.sub(" ", text).strip()


@dataclass(slots=True)
class _Bracket:
    """An opening bracket that may begin a link or image."""

    place: int
    after: int
    image: bool
    below: Run | None
    active: bool = True
    holds_bracket: bool = False


class _Inline:
    """One reading of one text, from left to right."""

    def __init__(self, text: str, labels: AbstractSet[str]) -> None:
        self._text = text
        self._labels = labels
        self._at = 0
        self._output: list[str] = []
        self._brackets: list[_Bracket] = []
        self._delimiters = Delimiters(self._output)
        self._ticks: dict[int, list[int]] | None = None
        self._absent: set[str] = set()

    def read(self) -> str:
        text, output = self._text, self._output
        while special := _SPECIAL.search(text, self._at):
            if special.start() > self._at:
                output.append(text[self._at : special.start()])
            self._at = special.start()
            self._read_special(special[0])
        output.append(text[self._at :])
        self._delimiters.resolve(None)
        return "".join(output)

    def _read_special(self, char: str) -> None:
        match char:
            case "\\":
                self._escape()
            case "`":
                self._code()
            case "*" | "_" | "~":
                self._delimiter_run(char)
            case "[":
                self._open_bracket(image=False)
            case "!" if self._text.startswith("[", self._at + 1):
                self._open_bracket(image=True)
            case "]":
                self._close_bracket()
            case "<":
                self._angle()
            case "&":
                self._entity()
            case _:
                self._emit(char, self._at + 1)

    def _emit(self, visible: str, end: int) -> None:
        """Add visible text for the source up to `end`."""
        self._output.append(visible)
        self._at = end

    def _escape(self) -> None:
        following = self._text[self._at + 1 : self._at + 2]
        if following == "\n":
            self._emit("\n", self._at + 2)
        elif following and following in _ESCAPABLE:
            self._emit(following, self._at + 2)
        else:
            self._emit("\\", self._at + 1)

    def _code(self) -> None:
        opened = _TICKS.match(self._text, self._at)
        after = opened.end() if opened else self._at + 1
        length = after - self._at
        closers = self._runs_of_ticks().get(length, [])
        index = bisect_left(closers, after)
        if index == len(closers):
            self._emit("`" * length, after)
            return
        code = self._text[after : closers[index]].replace("\n", " ")
        if code[0] == code[-1] == " " and code.strip(" "):
            code = code[1:-1]
        self._emit(code, closers[index] + length)

    def _runs_of_ticks(self) -> dict[int, list[int]]:
        """Where the runs of each length start, found once."""
        if self._ticks is None:
            self._ticks = {}
            for run in _TICKS.finditer(self._text):
                self._ticks.setdefault(len(run[0]), []).append(run.start())
        return self._ticks

    def _delimiter_run(self, char: str) -> None:
        start = end = self._at
        while self._text.startswith(char, end):
            end += 1
        self._emit(char * (end - start), end)
        self._delimiters.push(self._text, start, end)

    def _open_bracket(self, *, image: bool) -> None:
        if self._brackets:
            self._brackets[-1].holds_bracket = True
        mark = "![" if image else "["
        self._emit(mark, self._at + len(mark))
        self._brackets.append(
            _Bracket(len(self._output) - 1, self._at, image, self._delimiters.top)
        )

    def _close_bracket(self) -> None:
        bracket = self._brackets.pop() if self._brackets else None
        end = self._link_end(bracket) if bracket and bracket.active else None
        if bracket is None or end is None:
            self._emit("]", self._at + 1)
            return
        self._output[bracket.place] = ""
        self._delimiters.resolve(bracket.below)
        self._at = end
        if not bracket.image:
            self._deactivate_links()

    def _deactivate_links(self) -> None:
        """A link holds no link: the brackets around it that could be one are text."""
        for outer in reversed(self._brackets):
            if not outer.image:
                if not outer.active:
                    break
                outer.active = False

    def _link_end(self, bracket: _Bracket) -> int | None:
        """The place after the link or image whose text ends here; None if it is none."""
        after = self._at + 1
        return self._inline_end(after) or self._reference_end(bracket, after)

    def _inline_end(self, at: int) -> int | None:
        """The place after a destination and title in parentheses."""
        text = self._text
        if not text.startswith("(", at) or not self._has_after(")", at):
            return None
        at = skip_space(text, at + 1)
        end = destination_end(text, at) or at
        space = skip_space(text, end)
        if space > end:
            end = skip_space(text, title_end(text, space) or space)
        return end + 1 if text.startswith(")", end) else None

    def _reference_end(self, bracket: _Bracket, at: int) -> int | None:
        """The place after a full, collapsed or shortcut reference to a definition."""
        if not self._labels:
            return None
        named = label_at(self._text, at)
        end = named[1] if named else at
        if named and named[0]:
            return end if normalise_label(named[0]) in self._labels else None
        if bracket.holds_bracket or self._at - bracket.after > MAX_LABEL:
            return None
        label = normalise_label(self._text[bracket.after : self._at])
        return end if label in self._labels else None

    def _angle(self) -> None:
        if link := _AUTOLINK.match(self._text, self._at):
            self._emit(link[1], link.end())
        elif end := self._html_end():
            self._at = end
        else:
            self._emit("<", self._at + 1)

    def _html_end(self) -> int | None:
        """The place after the raw HTML that begins here (section 6.6)."""
        text, at = self._text, self._at
        if tag := _TAG.match(text, at):
            return tag.end()
        for shortest in ("<!-->", "<!--->"):
            if text.startswith(shortest, at):
                return at + len(shortest)
        for opening, closing in (("<!--", "-->"), ("<?", "?>"), ("<![CDATA[", "]]>")):
            if text.startswith(opening, at):
                return self._after(closing, at + len(opening))
        return self._after(">", at) if _DECLARATION.match(text, at) else None

    def _after(self, mark: str, at: int) -> int | None:
        """The place after the next such mark."""
        return self._text.index(mark, at) + len(mark) if self._has_after(mark, at) else None

    def _has_after(self, mark: str, at: int) -> bool:
        """Whether the mark comes again; once it does not, it is not looked for any more."""
        if mark not in self._absent and self._text.find(mark, at) < 0:
            self._absent.add(mark)
        return mark not in self._absent

    def _entity(self) -> None:
        found = _ENTITY.match(self._text, self._at)
        visible = _entity_text(found) if found else None
        if found and visible is not None:
            self._emit(visible, found.end())
        else:
            self._emit("&", self._at + 1)


def _entity_text(entity: re.Match[str]) -> str | None:
    """The character an entity stands for; None for a name that is none (section 2.5)."""
    hexadecimal, decimal, name = entity.groups()
    if name:
        return html5.get(f"{name};")
    code = int(hexadecimal, 16) if hexadecimal else int(decimal)
    valid = 0 < code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF
    return chr(code) if valid else _REPLACEMENT
