"""Hooks, between the wire and the domain."""

import json
from collections.abc import Iterable, Sequence
from typing import Final

from chatmind.agent.v1 import agent_pb2, hook_pb2

from services.agent.domain.hooks.registry import HookInfo
from services.agent.domain.models import HookSetting
from services.common.convert import from_json, to_json
from services.common.errors import InvalidArgumentError
from services.common.text import clean_json

MAX_CONFIG_BYTES: Final = 8192

_POSITIONS: Final = {
    "before_agent": hook_pb2.Hook.POSITION_BEFORE_AGENT,
    "before_model": hook_pb2.Hook.POSITION_BEFORE_MODEL,
    "after_model": hook_pb2.Hook.POSITION_AFTER_MODEL,
    "before_tool": hook_pb2.Hook.POSITION_BEFORE_TOOL,
    "after_tool": hook_pb2.Hook.POSITION_AFTER_TOOL,
    "on_error": hook_pb2.Hook.POSITION_ON_ERROR,
    "after_agent": hook_pb2.Hook.POSITION_AFTER_AGENT,
}


def to_hooks(values: Iterable[agent_pb2.AgentHook]) -> tuple[HookSetting, ...]:
    """The hooks that an agent is to have.

    Raises:
        InvalidArgumentError: a configuration is too large.
    """
    return tuple(_to_hook(place, value) for place, value in enumerate(values))


def from_hooks(settings: Sequence[HookSetting]) -> list[agent_pb2.AgentHook]:
    """The hooks that an agent has, for the wire."""
    return [
        agent_pb2.AgentHook(name=each.name, priority=each.priority, config=from_json(each.config))
        for each in settings
    ]


def from_infos(infos: Iterable[HookInfo]) -> list[hook_pb2.Hook]:
    """The hooks that there are, for the wire."""
    return [
        hook_pb2.Hook(
            name=info.name,
            description=info.description,
            positions=[_POSITIONS[position] for position in info.positions],
            priority=info.priority,
            config_schema=from_json(info.config_schema),
        )
        for info in infos
    ]


def _to_hook(place: int, value: agent_pb2.AgentHook) -> HookSetting:
    config = clean_json(to_json(value.config))
    assert isinstance(config, dict)  # noqa: S101 - a cleaned object is one
    if len(json.dumps(config, ensure_ascii=False).encode()) > MAX_CONFIG_BYTES:
        raise InvalidArgumentError.of_field(
            f"agent.hooks[{place}].config", f"must be at most {MAX_CONFIG_BYTES} bytes as JSON"
        )
    priority = value.priority if value.HasField("priority") else None
    return HookSetting(value.name, priority, config)
