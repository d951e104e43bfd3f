"""Passages as a model reads them, and the citations that its answers rest on. Pure.

A passage is shown as a header line and its text:

    [3] Handbook › Backups › Restore (lines 40-52)
    Use the restore script …

Labels count through a run: each search owns a block of numbers, so that searches which run side by
side, or again after a crash, never give one number to two passages. So does each call of another
agent, for the passages that its answer rests on.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

from services.agent.domain.chat import Passage
from services.agent.domain.messages import Citation, ToolCall
from services.agent.domain.models import ToolCallId

Basis = Literal["marked", "retrieved"]
"""Whether citations are those that the answer marks, or all that were found for it."""

ASK_PREFIX: Final = "ask_"
"""What the names of all tools that ask another agent begin with."""

MOST_CARRIED: Final = 50
"""How many passages of another agent's answer are carried over."""

_CUT = " […]"
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_MARK = re.compile(r"[\[【]([\d\s,，、;；–-]+)[\]】]")
_NUMBERS = re.compile(r"(\d{1,6})(?:\s*[–-]\s*(\d{1,6}))?")


def first_label(
    calls: Iterable[ToolCall], call_id: ToolCallId, *, tool_name: str, block: int
) -> int:
    """The first number of the block that belongs to one call among all calls of a run.

    Args:
        calls: every call of the run so far, in order.
        call_id: the call; its id is unique among them.
        tool_name: calls of this tool own blocks, and so do those of agents, `MOST_CARRIED` each.
        block: how many numbers each of the former owns.
    """
    first = 1
    for call in calls:
        if call.id == call_id:
            break
        if call.name == tool_name:
            first += block
        elif call.name.startswith(ASK_PREFIX):
            first += MOST_CARRIED
    return first


def labelled(passages: Sequence[Passage], first: int) -> tuple[Passage, ...]:
    """The passages with labels from `first` on."""
    return tuple(
        replace(passage, citation=replace(passage.citation, label=str(number)))
        for number, passage in enumerate(passages, start=first)
    )


def render(passages: Sequence[Passage], *, max_chars: int) -> str:
    """Labelled passages as a model reads them, each cut to its share of `max_chars`."""
    share = max_chars // max(len(passages), 1)
    return "\n\n".join(_rendered(passage, share) for passage in passages)


def _rendered(passage: Passage, share: int) -> str:
    head, body = header(passage.citation), passage.text.strip()
    room = max(share - len(head) - len(_CUT) - len("\n\n\n"), 0)
    return f"{head}\n{body if len(body) <= room else body[:room] + _CUT}"


def header(citation: Citation) -> str:
    """The line above a passage: label, document, headings and lines."""
    return f"[{citation.label}] {place(citation)}"


def place(citation: Citation) -> str:
    """Where a passage stands, for people: document, headings and lines."""
    names = (citation.document_name, *citation.heading_path)
    path = " › ".join(" ".join(name.split()) for name in names)
    return f"{path} (lines {citation.start_line}-{citation.end_line})"


def passages_in(text: str, citations: Sequence[Citation]) -> list[Passage]:
    """The passages of a text made by `render`, told apart by their citations."""
    found: list[Passage] = []
    end = len(text)
    for citation in reversed(citations):
        head = header(citation) + "\n"
        start = text.rfind(head, 0, end)
        if start >= 0:
            found.append(Passage(text[start + len(head) : end].strip(), citation))
            end = start
    return found[::-1]


def answer_citations(
    text: str, retrieved: Iterable[Citation]
) -> tuple[tuple[Citation, ...], Basis | None]:
    """What an answer rests on: the passages it marks, or all that were found if it marks none.

    Args:
        text: the answer.
        retrieved: every passage that the run's tools brought.

    Returns:
        citations, marked ones in the order of the text and otherwise by falling score, and which
        of the two it is; None where nothing was found.
    """
    known = {citation.label: citation for citation in retrieved}
    marked = [known[label] for label in dict.fromkeys(marks(text)) if label in known]
    if marked:
        return tuple(marked), "marked"
    best: dict[str, Citation] = {}
    for citation in sorted(known.values(), key=lambda each: each.score, reverse=True):
        best.setdefault(citation.chunk_id, citation)
    return tuple(best.values()), "retrieved" if best else None


def carried_over(
    text: str, citations: Sequence[Citation], first: int
) -> tuple[str, tuple[Citation, ...]]:
    """An answer that another run gave, with labels of this one.

    Marks that stand for none of the citations are no marks any more, lest they be taken for one of
    this run's own.

    Args:
        text: the answer.
        citations: what it rests on; beyond `MOST_CARRIED` they are left out.
        first: the first label of this run that is free for them.
    """
    kept = citations[:MOST_CARRIED]
    new = {each.label: str(number) for number, each in enumerate(kept, start=first)}
    carried = tuple(replace(each, label=new[each.label]) for each in kept)
    pieces, end = list[str](), 0
    for code in _CODE.finditer(text):
        pieces += [_remarked(text[end : code.start()], new), code[0]]
        end = code.end()
    return "".join([*pieces, _remarked(text[end:], new)]), carried


def _remarked(text: str, new: Mapping[str, str]) -> str:
    def remark(mark: re.Match[str]) -> str:
        labels = [new[label] for label in marks(mark[0]) if label in new]
        return f"[{', '.join(labels)}]" if labels else f"({mark[1].strip()})"

    return _MARK.sub(remark, text)


def marks(text: str) -> list[str]:
    """The labels that stand in a text as `[1]`, `[1, 2]`, `[1-3]` or `【1】`, code left aside."""
    labels: list[str] = []
    for mark in _MARK.finditer(_CODE.sub(" ", text)):
        for first, last in _NUMBERS.findall(mark[1]):
            stop = int(last or first)
            if int(first) <= stop < int(first) + 100:
                labels += [str(number) for number in range(int(first), stop + 1)]
    return labels
