"""Reads the text of an HTML page as Markdown, in time proportional to its length. Pure.

It is no parser of HTML: it keeps no tree, so that nothing in a page can make it slow or deep. What
a person does not see is left out: scripts, styles, comments, and elements that are hidden.
"""

import html
import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urljoin

_NAME = re.compile(r"/?[A-Za-z][^\s/>\"'<]{0,40}")
# Possessive, so that a tag which does not end is read once; nothing of the page follows it.
_REST_OF_TAG = re.compile(r"""([^>"']*+(?:"[^"]*+"[^>"']*+|'[^']*+'[^>"']*+)*+)>""")
_ATTRIBUTE = re.compile(r"""([a-zA-Z-]++)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'>]++)))?""")
_HIDING = re.compile(
    r"display\s{0,5}:\s{0,5}none|visibility\s{0,5}:\s{0,5}hidden"
    r"|font-size\s{0,5}:\s{0,5}0(?![.\d])"
)
_BLANKS = re.compile(r"\s+")
_MANY_LINES = re.compile(r"\n{3,}")

_RAW: Final = frozenset({"script", "style", "textarea", "title", "xmp", "noembed"})
_LEFT_OUT: Final = frozenset(
    {"canvas", "iframe", "math", "nav", "noscript", "object", "select", "svg", "template"}
)
_HIDABLE: Final = frozenset(
    {"article", "aside", "b", "code", "div", "em", "footer", "form", "header", "i", "main", "ol"}
    | {"section", "small", "span", "strong", "table", "ul", "a", "label", "button", "details"}
)
_BLOCKS: Final = frozenset(
    {"address", "article", "aside", "blockquote", "body", "dd", "details", "div", "dl", "dt"}
    | {"figure", "footer", "form", "header", "hr", "main", "ol", "p", "section", "summary"}
    | {"table", "ul"}
)
_HEADINGS: Final = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_DEEPEST_LIST: Final = 8


def markdown_of(page: str, *, base_url: str) -> str:
    """What a person would read on the page, with its title, headings, lists, tables and links.

    Args:
        page: the page; may be cut off anywhere.
        base_url: what its links are relative to.
    """
    reader = _Reader(base_url)
    place = 0
    while place < len(page):
        start = page.find("<", place)
        if start < 0:
            start = len(page)
        if start > place:
            reader.text(page[place:start])
        place = _markup(page, start, reader) if start < len(page) else start
    return reader.written()


def _markup(page: str, start: int, reader: "_Reader") -> int:
    """Read what begins with "<"; gives where it ends."""
    if page.startswith("<!--", start):
        return _behind(page, "-->", start + 4)
    if page.startswith(("<!", "<?"), start):
        return _behind(page, ">", start)
    name = _NAME.match(page, start + 1)
    if name is None:
        reader.text("<")
        return start + 1
    rest = _REST_OF_TAG.match(page, name.end())
    if rest is None:
        return len(page)
    tag = name[0].lower()
    if tag in _RAW:
        return _raw(page, tag, rest.end(), reader)
    if tag.startswith("/"):
        reader.close(tag[1:])
    else:
        reader.open(tag, rest[1])
    return rest.end()


def _raw(page: str, tag: str, start: int, reader: "_Reader") -> int:
    """Pass over an element that has no markup within; a title is kept."""
    end = re.compile(f"</{tag}(?=[\\s/>])", re.IGNORECASE).search(page, start)
    if tag == "title" and end is not None:
        reader.title(page[start : end.start()])
    return len(page) if end is None else _behind(page, ">", end.start())


def _behind(page: str, mark: str, start: int) -> int:
    found = page.find(mark, start)
    return len(page) if found < 0 else found + len(mark)


@dataclass(slots=True)
class _Reader:
    """Writes down what it is told of.

    Attributes:
        base_url: what links are relative to.
        out: what is written.
        skipped: the element that is passed over, and how many of its name are open.
        lists: the next number of each open list; 0 where it has none.
        links: where each open link leads.
        cells: whether the row has cells already.
        verbatim: how many elements are open in which blanks count.
        titled: whether the title has been told.
    """

    base_url: str
    out: list[str] = field(default_factory=list)
    skipped: tuple[str, int] | None = None
    lists: list[int] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    cells: bool = False
    verbatim: int = 0
    titled: bool = False

    def written(self) -> str:
        """All of it."""
        lines = "".join(self.out).split("\n")
        return _MANY_LINES.sub("\n\n", "\n".join(line.rstrip() for line in lines)).strip()

    def title(self, text: str) -> None:
        """The page's title, the first time."""
        shown = " ".join(html.unescape(text).split())
        if shown and not self.titled and self.skipped is None:
            self.titled = True
            self.out.append(f"Title: {shown}\n\n")

    def text(self, text: str) -> None:
        """Text between tags."""
        if self.skipped is not None:
            return
        shown = html.unescape(text)
        if self.verbatim:
            self.out.append(shown)
            return
        shown = _BLANKS.sub(" ", shown)
        at_start = not self.out or self.out[-1].endswith(("\n", " "))
        self.out.append(shown.lstrip(" ") if at_start else shown)

    def open(self, tag: str, rest: str) -> None:
        """A tag that opens an element."""
        if self.skipped is not None:
            name, depth = self.skipped
            if tag == name:
                self.skipped = (name, depth + 1)
        elif tag in _LEFT_OUT or (tag in _HIDABLE and _is_hidden(rest)):
            self.skipped = (tag, 1)
        elif tag in {"ul", "ol"}:
            self._break()
            self.lists.append(1 if tag == "ol" else 0)
        elif tag == "a":
            self.links.append(_attribute(rest, "href"))
            self.out.append("[" if self._link else "")
        elif tag == "img":
            self.text(_attribute(rest, "alt"))
        else:
            self._open_plain(tag)

    def close(self, tag: str) -> None:
        """A tag that closes an element."""
        if self.skipped is not None:
            name, depth = self.skipped
            if tag == name:
                self.skipped = (name, depth - 1) if depth > 1 else None
        elif tag in {"ul", "ol"} and self.lists:
            self.lists.pop()
            self._break()
        elif tag == "a" and self.links:
            link = self._link
            self.links.pop()
            self.out.append(f"]({link})" if link else "")
        elif tag == "pre" and self.verbatim:
            self.verbatim -= 1
            self.out.append("\n```\n\n")
        elif tag == "code" and not self.verbatim:
            self.out.append("`")
        elif tag in _BLOCKS | _HEADINGS:
            self._break()

    def _open_plain(self, tag: str) -> None:
        if tag in _HEADINGS:
            self._break()
            self.out.append(f"{'#' * int(tag[1])} ")
        elif tag == "br":
            self.out.append("\n")
        elif tag == "li":
            self._item()
        elif tag == "tr":
            self.out.append("\n")
            self.cells = False
        elif tag in {"td", "th"}:
            self.out.append(" | " if self.cells else "")
            self.cells = True
        elif tag == "pre":
            self._break()
            self.verbatim += 1
            self.out.append("```\n")
        elif tag == "code" and not self.verbatim:
            self.out.append("`")
        elif tag in _BLOCKS:
            self._break()

    def _item(self) -> None:
        indent = "  " * min(max(len(self.lists) - 1, 0), _DEEPEST_LIST)
        mark = "-"
        if self.lists and self.lists[-1]:
            mark = f"{self.lists[-1]}."
            self.lists[-1] += 1
        self.out.append(f"\n{indent}{mark} ")

    def _break(self) -> None:
        self.out.append("\n" if self.lists else "\n\n")

    @property
    def _link(self) -> str:
        """Where the innermost open link leads; nothing where that is no page."""
        target = self.links[-1].strip()
        if not target or target.startswith("#"):
            return ""
        try:
            whole = urljoin(self.base_url, target)
        except ValueError:
            return ""
        is_page = whole.startswith(("https://", "http://"))
        return whole if is_page and not re.search(r"[\s()<>]", whole) else ""


def _attribute(rest: str, name: str) -> str:
    for found in _ATTRIBUTE.finditer(rest):
        if found[1].lower() == name:
            return html.unescape(found[2] or found[3] or found[4] or "")
    return ""


def _is_hidden(rest: str) -> bool:
    for found in _ATTRIBUTE.finditer(rest):
        name, value = found[1].lower(), found[2] or found[3] or found[4] or ""
        if name == "hidden" or (name == "aria-hidden" and value == "true"):
            return True
        if name == "style" and _HIDING.search(value.lower()):
            return True
    return False
