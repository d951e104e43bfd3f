"""The hooks that agents can be given, by name, and those that an agent has."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic import ValidationError

from services.agent.domain.chat import RunContext
from services.agent.domain.errors import UnknownHookError
from services.agent.domain.hooks.around import Around, HooksAround, Nothing
from services.agent.domain.hooks.calling import HookCaller
from services.agent.domain.hooks.hook import (
    CallCounts,
    CallHistory,
    Hook,
    HookConfig,
    HookRun,
    positions,
)
from services.agent.domain.messages import Message
from services.agent.domain.models import HookSetting, RunId, SessionId
from services.agent.domain.ports import Model
from services.common.errors import FieldViolation, InvalidArgumentError
from services.common.tasks import BackgroundTasks
from services.common.text import Json

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class HookInfo:
    """What is told of a hook.

    Attributes:
        name: selects it in an agent.
        description: what it does.
        positions: where it does something.
        priority: where it stands unless an agent says otherwise.
        config_schema: the JSON Schema of its configuration.
    """

    name: str
    description: str
    positions: tuple[str, ...]
    priority: int
    config_schema: Mapping[str, Json]


class NoHistory:
    """Knows of no other runs; satisfies `CallHistory`."""

    async def calls_of_others(
        self,
        session_id: SessionId,
        run_id: RunId,
    ) -> CallCounts:
        return CallCounts()


@dataclass(frozen=True, slots=True)
class HookSet:
    """The hooks of one agent, made for one run.

    Attributes:
        hooks: outermost first.
        history: tells them what was called before.
    """

    hooks: tuple[Hook[HookConfig], ...] = ()
    history: CallHistory = field(default_factory=NoHistory)

    @property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(hook.name for hook in self.hooks)

    def around(
        self,
        context: RunContext,
        model: Model,
        *,
        messages: Sequence[Message],
        tasks: BackgroundTasks,
    ) -> Around:
        """What stands around the run's steps.

        Args:
            context: the run.
            model: who is asked.
            messages: the run's, a list that grows with it.
            tasks: own what the hooks do.
        """
        if not self.hooks:
            return Nothing()
        run = HookRun(
            identity=context.identity,
            agent=context.agent,
            session_id=context.run.session_id,
            run_id=context.run.id,
            model=model.info,
            steps=context.run.step_count,
            messages=messages,
            history=self.history,
        )
        return HooksAround(self.hooks, run, HookCaller(tasks, context.run.id))


class Hooks:
    """A fixed set of hooks."""

    def __init__(
        self, kinds: Iterable[type[Hook[HookConfig]]] = (), *, history: CallHistory | None = None
    ) -> None:
        """Holds these hooks.

        Args:
            kinds: their classes.
            history: tells them what was called before; nothing unless given.

        Raises:
            ValueError: a name is malformed or comes twice.
        """
        self._history = history or NoHistory()
        self._kinds: dict[str, type[Hook[HookConfig]]] = {}
        for kind in kinds:
            name = getattr(kind, "name", "")
            if name in self._kinds or not _NAME.fullmatch(name):
                raise ValueError(f"hook name {name!r} is malformed or comes twice")
            self._kinds[name] = kind

    def list(self) -> Sequence[HookInfo]:
        """All of them, sorted by name."""
        return [_info(self._kinds[name]) for name in sorted(self._kinds)]

    def chosen(self, settings: Sequence[HookSetting]) -> HookSet:
        """The hooks that an agent has, in order.

        Raises:
            UnknownHookError: there is no hook of that name.
            InvalidArgumentError: a configuration is not one of its hook, or a hook comes twice.
        """
        made = [self._made(place, setting) for place, setting in enumerate(settings)]
        names = [setting.name for setting in settings]
        for place, name in enumerate(names):
            if name in names[:place]:
                raise InvalidArgumentError.of_field(
                    f"agent.hooks[{place}].name", f"{name!r} comes twice"
                )
        places = {
            setting.name: (hook.priority if setting.priority is None else setting.priority)
            for setting, hook in zip(settings, made, strict=True)
        }
        hooks = sorted(made, key=lambda hook: (places[hook.name], hook.name))
        return HookSet(tuple(hooks), self._history)

    def _made(self, place: int, setting: HookSetting) -> Hook[HookConfig]:
        kind = self._kinds.get(setting.name)
        if kind is None:
            field = f"agent.hooks[{place}].name"
            raise UnknownHookError.of(field, setting.name, known=self._kinds)
        try:
            return kind(kind.config_type.model_validate(setting.config))
        except ValidationError as error:
            raise _invalid(f"agent.hooks[{place}].config", error) from None


def _invalid(field: str, error: ValidationError) -> InvalidArgumentError:
    violations = [
        FieldViolation(f"{field}{_path(each['loc'])}", each["msg"])
        for each in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    first = violations[0]
    return InvalidArgumentError(f"{first.field}: {first.description}", violations=violations)


def _path(parts: Iterable[int | str]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)


def _info(kind: type[Hook[HookConfig]]) -> HookInfo:
    return HookInfo(
        name=kind.name,
        description=" ".join((kind.__doc__ or "").split()),
        positions=positions(kind),
        priority=kind.priority,
        config_schema=kind.config_type.model_json_schema(),
    )
