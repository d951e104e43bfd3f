"""Calls one position of a hook: whatever the hook does, it gives a value or one typed failure."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, ParamSpec, TypeVar

import structlog

from services.agent.domain.chat import ChatMessage, ModelReply, ModelRequest, ToolResult
from services.agent.domain.hooks.hook import (
    AskAgain,
    CallTools,
    End,
    Hook,
    HookConfig,
    OnFailure,
)
from services.agent.domain.messages import Role, ToolCall
from services.agent.domain.models import RunId
from services.agent.domain.soundness import check_sound
from services.common.tasks import BackgroundTasks

STOP_GRACE: Final = 0.5
"""Seconds for a hook that is told to stop to do so."""

P = ParamSpec("P")
T = TypeVar("T")

_REASON = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_JUMPS = (End, CallTools, AskAgain)
_GIVES: Mapping[str, tuple[type, ...]] = {
    "before_agent": (End,),
    "before_model": (ModelRequest, *_JUMPS),
    "after_model": (ModelReply, *_JUMPS),
    "before_tool": (ToolCall, ToolResult),
    "after_tool": (ToolResult,),
    "on_error": (End,),
    "after_agent": (str,),
}


class HookFailedError(Exception):
    """A hook raised or took too long, and the run must not go on without it."""

    def __init__(self, hook: str) -> None:
        super().__init__(hook)
        self.hook = hook

    @property
    def message(self) -> str:
        """What a person is told."""
        return f"The hook {self.hook} failed, and this agent does not go on without it."


@dataclass(frozen=True, slots=True)
class HookCaller:
    """Calls the hooks of one run.

    Attributes:
        tasks: own what the hooks do, also beyond a call where a hook does not stop.
        run_id: for the log.
    """

    tasks: BackgroundTasks
    run_id: RunId

    async def call(
        self,
        hook: Hook[HookConfig],
        method: Callable[P, Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T | None:
        """What a position of the hook gives; None where it failed and is passed over.

        Args:
            hook: whose position it is.
            method: the position.
            args: what it is given.
            kwargs: none.

        Raises:
            HookFailedError: the hook failed, and it is not to be passed over.
        """
        position = method.__name__
        log = structlog.get_logger("hooks").bind(
            hook=hook.name, position=position, run_id=self.run_id
        )
        given: list[T] = []

        async def give() -> None:
            try:
                value = await method(*args, **kwargs)
                check(position, args, value)
                given.append(value)
            except asyncio.CancelledError:
                log.warning("hook was cut off")
                raise
            except BaseException:  # a hook may raise anything; the worker goes on
                log.exception("hook failed")

        task = self.tasks.start(f"hook {hook.name}", give())
        try:
            done, _ = await asyncio.wait({task}, timeout=hook.seconds)
            if done and given:
                return given[0]
            if not done:
                task.cancel()
                await asyncio.wait({task}, timeout=STOP_GRACE)
        finally:
            task.cancel()
        if hook.on_failure is OnFailure.FAIL:
            raise HookFailedError(hook.name)
        return None


def check(position: str, args: Sequence[object], value: object) -> None:
    """Check what a position gave.

    Args:
        position: its name.
        args: what it was given.
        value: what it gave.

    Raises:
        TypeError: a value of that type means nothing there, or it holds one that does not.
        ValueError: it would break the conversation, or could not be told.
    """
    if value is None:
        return
    if not isinstance(value, _GIVES[position]):
        raise TypeError(f"{position} gave a {type(value).__name__}")
    check_sound(value)
    if isinstance(value, End) and value.error and not _REASON.fullmatch(value.error):
        raise ValueError("the error of an end must be in UPPER_SNAKE_CASE, at most 64 characters")
    if isinstance(value, ModelRequest) and not _paired(value.messages):
        raise ValueError("the request holds a tool call without its result, or the reverse")
    if isinstance(value, ToolCall) and isinstance(asked := args[0], ToolCall):  # noqa: SIM102
        if (value.id, value.name) != (asked.id, asked.name):
            raise ValueError("a hook may change the arguments of a call, not its id or its tool")


def _paired(messages: Sequence[ChatMessage]) -> bool:
    """Whether the calls of each message are answered right behind it, and nothing else is."""
    open_calls: list[str] = []
    for message in messages:
        if message.role is Role.TOOL:
            if message.tool_call_id not in open_calls:
                return False
            open_calls.remove(message.tool_call_id)
        elif open_calls:
            return False
        else:
            open_calls = [call.id for call in message.tool_calls]
    return not open_calls
