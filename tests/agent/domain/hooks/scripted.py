"""Hooks that do what a test tells them, and note when they are called."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from services.agent.domain.chat import ModelReply, ModelRequest, ToolResult
from services.agent.domain.hooks.hook import (
    End,
    Hook,
    HookConfig,
    HookRun,
    Jump,
    OnFailure,
)
from services.agent.domain.hooks.registry import Hooks
from services.agent.domain.messages import ToolCall
from services.agent.domain.models import AgentSettings, HookSetting
from services.agent.domain.run_models import RunError
from tests.agent.turns import PlainTool, Scene, ScriptedModel

Act = Callable[..., Any]


@dataclass
class Log:
    """What was called, in order, as "hook.position"."""

    called: list[str] = field(default_factory=list)

    async def note(self, name: str, position: str, acts: Mapping[str, Act], *args: Any) -> Any:
        self.called.append(f"{name}.{position}")
        act = acts.get(position)
        given = act(*args) if act is not None else None
        return await given if isinstance(given, Awaitable) else given


def scripted_hook(
    hook_name: str,
    log: Log,
    *,
    hook_priority: int = 100,
    hook_seconds: float = 5.0,
    failing: OnFailure = OnFailure.FAIL,
    acts: Mapping[str, Act] | None = None,
    **more: Act,
) -> type[Hook[HookConfig]]:
    """A hook whose positions do what `acts`, or further arguments, say."""
    does = {**(acts or {}), **more}

    class Scripted(Hook[HookConfig]):
        """Does what a test tells it."""

        name = hook_name
        priority = hook_priority
        seconds = hook_seconds
        on_failure = failing

        async def before_agent(self, run: HookRun) -> End | None:
            given: End | None = await log.note(hook_name, "before_agent", does, run)
            return given

        async def before_model(
            self, request: ModelRequest, run: HookRun
        ) -> ModelRequest | Jump | None:
            given: ModelRequest | Jump | None = await log.note(
                hook_name, "before_model", does, request
            )
            return given

        async def after_model(self, reply: ModelReply, run: HookRun) -> ModelReply | Jump | None:
            given: ModelReply | Jump | None = await log.note(hook_name, "after_model", does, reply)
            return given

        async def before_tool(self, call: ToolCall, run: HookRun) -> ToolCall | ToolResult | None:
            given: ToolCall | ToolResult | None = await log.note(
                hook_name, "before_tool", does, call
            )
            return given

        async def after_tool(
            self, call: ToolCall, result: ToolResult, run: HookRun
        ) -> ToolResult | None:
            given: ToolResult | None = await log.note(hook_name, "after_tool", does, result)
            return given

        async def on_error(self, error: RunError, run: HookRun) -> End | None:
            given: End | None = await log.note(hook_name, "on_error", does, error)
            return given

        async def after_agent(self, text: str, run: HookRun) -> str | None:
            given: str | None = await log.note(hook_name, "after_agent", does, text)
            return given

    return Scripted


def hooked(
    scene: Scene[ScriptedModel],
    *kinds: type[Hook[HookConfig]],
    **configs: Mapping[str, Any],
) -> Scene[ScriptedModel]:
    """The scene, its agent having these hooks with these configurations."""
    scene.hooks = Hooks(kinds)
    settings = tuple(HookSetting(kind.name, config=configs.get(kind.name, {})) for kind in kinds)
    scene.settings = AgentSettings(
        scene.settings.display_name, limits=scene.settings.limits, hooks=settings
    )
    return scene


def scene_of(*script: Any, otherwise: Any = None) -> Scene[ScriptedModel]:
    """A run with a scripted model and the tool `look`."""
    return Scene(ScriptedModel(*script, otherwise=otherwise), [PlainTool()])
