"""Tool calls in the form of Qwen3-Coder, which needs no JSON. Pure.

    <function=look>
    <parameter=what>
    the backup
    </parameter>
    </function>

Models leave the `<tool_call>` around it out now and then. A value is text, without the line breaks
at its ends; `domain.tools.repair` reads it as the type that the tool asks for.
"""

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

_OPENING: Final = re.compile(r"\s*+(?P<tag><tool_call>)?\s*+(?=<function=)")
_CLOSING: Final = re.compile(r"\s*+(?:</tool_call>)?")
_BEGINNING: Final = re.compile(r"\s*+<function=\s*+[\"']?(?P<name>[^\s<>\"']{1,200})[\"']?\s*+>")
_PARAMETER: Final = re.compile(r"\s*+<parameter=\s*+[\"']?(?P<name>[^\s<>\"']{1,200})[\"']?\s*+>")
_VALUE_END: Final = re.compile(r"</parameter>|(?=<parameter=|</function>|</tool_call>)")
_END: Final = re.compile(r"\s*+(?:</function>|(?=</tool_call>))")


@dataclass(frozen=True, slots=True)
class WrittenFunction:
    """A call.

    Attributes:
        name: of the tool.
        arguments_json: all strings; None where the call breaks off.
        end: the place after it.
    """

    name: str
    arguments_json: str | None
    end: int


@dataclass(frozen=True, slots=True)
class WrittenFunctions:
    """Calls that follow each other.

    Attributes:
        calls: at least one; only the last may break off.
        end: the place after them.
    """

    calls: Sequence[WrittenFunction]
    end: int


def functions(
    text: str, place: int, *, known: Collection[str], most: int, tag_suffices: bool
) -> WrittenFunctions | None:
    """The calls from a place on; None where none begins there.

    Args:
        text: what the model wrote.
        place: where to begin.
        known: tools whose calls are taken.
        most: how many are taken.
        tag_suffices: in a `<tool_call>`, those of any other tool are, too.
    """
    opening = _OPENING.match(text, place)
    if opening is None:
        return None
    found: list[WrittenFunction] = []
    place, any_tool = opening.end(), tag_suffices and opening["tag"] is not None
    while len(found) < most and (beginning := _BEGINNING.match(text, place)):
        if not any_tool and beginning["name"] not in known:
            break
        found.append(_function(text, beginning))
        place = found[-1].end
        if found[-1].arguments_json is None:
            break
    if not found:
        return None
    closing = _CLOSING.match(text, place)
    return WrittenFunctions(found, closing.end() if closing else place)


def _function(text: str, beginning: re.Match[str]) -> WrittenFunction:
    arguments: dict[str, str] = {}
    place = beginning.end()
    while parameter := _PARAMETER.match(text, place):
        closing = _VALUE_END.search(text, parameter.end())
        if closing is None:
            return WrittenFunction(beginning["name"], None, len(text))
        arguments[parameter["name"]] = _trimmed(text[parameter.end() : closing.start()])
        place = closing.end()
    end = _END.match(text, place)
    if end is None:
        return WrittenFunction(beginning["name"], None, place)
    written = json.dumps(arguments, ensure_ascii=False)
    return WrittenFunction(beginning["name"], written, end.end())


def _trimmed(value: str) -> str:
    return value.removeprefix("\r").removeprefix("\n").removesuffix("\n").removesuffix("\r")
