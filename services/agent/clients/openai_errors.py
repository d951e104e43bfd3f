"""What a failed request to a model means, and what of it may be told. Pure."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Final

from services.agent.clients.model_http import (
    ConnectTimeoutError,
    ModelHttpError,
    NotBegunError,
    ReplyTooLargeError,
    StalledReplyError,
    UnreachableError,
)
from services.agent.clients.openai_reply import ReportedError, UnreadableReplyError
from services.agent.domain.errors import (
    ContextTooLongError,
    EmptyAnswerError,
    ModelRejectedError,
    ModelUnavailableError,
)
from services.common.clock import Clock
from services.common.text import clean

_MOST_CHARS: Final = 300
_RETRIED: Final = frozenset({408, 409, 425})
_ABOUT_THE_KEY: Final = frozenset({401, 403})
_SECRET = re.compile(
    r"\b[spr]k-[\w*.-]+|\bBearer\s+\S+|\b[A-Za-z0-9_-]{32,}\b|\S*\*{3,}\S*", re.IGNORECASE
)
_TOO_LONG = re.compile(
    r"context_length_exceeded|maximum context length|context (?:length|window|size)"
    r"|too many tokens",
    re.IGNORECASE,
)
# As in "maximum context length is 8192 tokens" and "the available context size (4096 tokens)".
_LIMIT = re.compile(r"context (?:length|window|size)\D{0,20}(\d{3,8})\b", re.IGNORECASE)
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\s]+")


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that failed.

    Attributes:
        error: what is told of it.
        kind: what is logged of it, such as "status 503".
        retry: asking again may help, and the failure counts against the endpoint.
        retry_after: seconds that the server wants to be left alone; 0 where it does not say.
    """

    error: ModelUnavailableError | ModelRejectedError | EmptyAnswerError
    kind: str
    retry: bool = True
    retry_after: float = 0.0


def failure(error: Exception, *, model: str, secret: str, clock: Clock) -> Failure | None:
    """What an exception of a request means; None where it is none of the known kinds.

    Args:
        error: what was raised.
        model: the model's name, for the message.
        secret: the key that was sent, which the message must not hold.
        clock: for a Retry-After that is a date.
    """
    match error:
        case ModelHttpError():
            return _no_reply(error, model)
        case UnreadableReplyError():
            text = f"The server of model {model!r} sent something that is no reply."
            return _unavailable(text, "unreadable reply")
        case EmptyAnswerError():
            return Failure(error, kind="empty reply", retry=False)
        case ReportedError():
            if failed := _unavailable_by_status(error.status, model):
                return replace(failed, retry_after=_retry_after(error.retry_after, clock))
            return _refused(error.status, error.body, model=model, secret=secret)
        case _:
            return None


def _no_reply(error: ModelHttpError, model: str) -> Failure | None:
    match error:
        case UnreachableError():
            return _unavailable(f"The server of model {model!r} cannot be reached.", "connection")
        case ConnectTimeoutError():
            text = f"The server of model {model!r} cannot be reached."
            return _unavailable(text, "connect timeout")
        case NotBegunError():
            text = f"The model {model!r} did not begin to answer in time."
            return _unavailable(text, "timeout")
        case StalledReplyError():
            text = f"The model {model!r} fell silent in the middle of its reply."
            return _unavailable(text, "stalled reply")
        case ReplyTooLargeError():
            text = f"The model {model!r} sent a reply that is too large."
            return Failure(ModelUnavailableError(text), kind="reply too large", retry=False)
        case _:
            return None


def _unavailable(text: str, kind: str) -> Failure:
    return Failure(ModelUnavailableError(text), kind=kind)


def _unavailable_by_status(status: int, model: str) -> Failure | None:
    if status == 429:
        text = f"The server of model {model!r} takes no more requests for now (status 429)."
    elif status >= 500 or status in _RETRIED:
        text = f"The server of model {model!r} is unavailable (status {status})."
    else:
        return None
    return _unavailable(text, f"status {status}")


def _refused(status: int, body: object, *, model: str, secret: str) -> Failure:
    said = "" if status in _ABOUT_THE_KEY else _said(body, secret)
    text = f"The server of model {model!r} refused the request (status {status}){said}."
    too_long = _TOO_LONG.search(f"{_code(body)} {said}")
    error: ModelRejectedError = ModelRejectedError(text)
    if too_long:
        limit = _LIMIT.search(said)
        error = ContextTooLongError.of(text, int(limit[1]) if limit else None)
    return Failure(error, kind=f"status {status}", retry=False)


def _said(body: object, secret: str) -> str:
    """The server's own message, if it is one: one line, short, without anything like a key."""
    message = body.get("message") if isinstance(body, Mapping) else None
    if not isinstance(message, str):
        return ""
    line = message.replace(secret, "[…]") if secret else message
    line = _SECRET.sub("[…]", _UNPRINTABLE.sub(" ", clean(line))).strip().rstrip(".")
    return f": {line[:_MOST_CHARS]}" if line else ""


def _code(body: object) -> str:
    return str(body.get("code")) if isinstance(body, Mapping) else ""


def _retry_after(value: str, clock: Clock) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = _until(value, clock)
    return max(seconds, 0.0) if math.isfinite(seconds) else 0.0


def _until(date: str, clock: Clock) -> float:
    try:
        return (parsedate_to_datetime(date) - clock()).total_seconds()
    except (TypeError, ValueError):
        return math.nan
