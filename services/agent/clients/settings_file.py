"""Files in which an operator declares what the service may use: TOML, read strictly."""

import tomllib
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

_F = TypeVar("_F", bound="Strict")


class Strict(BaseModel):
    """A table of such a file: without unknown keys, and its values in no error's words."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


def reason_of(problem: ErrorDetails) -> str:
    """What is wrong with a value, in words for an operator."""
    return "unknown key" if problem["type"] == "extra_forbidden" else problem["msg"]


def read_settings_file(
    path: Path,
    kind: type[_F],
    *,
    error: type[Exception],
    reason: Callable[[ErrorDetails], str] = reason_of,
) -> _F:
    """What stands in a file; numbers with a point are read exactly.

    Args:
        path: the file.
        kind: what is to stand in it.
        error: made of one line for an operator where it does not.
        reason: says what is wrong with a value.

    Raises:
        Exception: `error`, for a file that cannot be read, is no TOML, or holds something else.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
        return kind.model_validate(content)
    except OSError as fault:
        raise error(f"{path}: cannot be read: {fault.strerror}") from fault
    except ValidationError as fault:
        problems = fault.errors(include_url=False, include_input=False, include_context=False)
        raise error("; ".join(_told(path, each, reason(each)) for each in problems)) from fault
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        raise error(f"{path}: is no TOML: {fault}") from fault


def _told(path: Path, problem: ErrorDetails, reason: str) -> str:
    where = ".".join(str(part) for part in problem["loc"] if part != "[key]")
    return f"{path}: {where}: {reason}"
