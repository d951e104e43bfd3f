"""The hook `context_editing`: old tool results are no longer shown once the context is long."""

from dataclasses import replace
from typing import Annotated, Final

from pydantic import Field

from services.agent.domain.chat import ChatMessage, ModelRequest
from services.agent.domain.hooks.hook import Hook, HookConfig, HookRun
from services.agent.domain.messages import Role
from services.agent.domain.turn.tokens import estimate_message

CLEARED: Final = "[cleared]"


class ContextEditingConfig(HookConfig):
    """When and what is cleared."""

    trigger_tokens: int = Field(
        default=30_000,
        ge=0,
        le=10_000_000,
        description="Estimated tokens from which on results are cleared.",
    )
    keep: int = Field(default=3, ge=0, le=1000, description="How many of the newest results stay.")
    keep_tools: tuple[Annotated[str, Field(max_length=256)], ...] = Field(
        default=(), max_length=64, description="Tools whose results always stay."
    )


class ContextEditing(Hook[ContextEditingConfig]):
    """Shows old tool results to the model as "[cleared]" once the context is long.

    Calls keep their results, and the stored history keeps everything.
    """

    name = "context_editing"
    config_type = ContextEditingConfig

    async def before_model(self, request: ModelRequest, run: HookRun) -> ModelRequest | None:
        if sum(map(estimate_message, request.messages)) < self.config.trigger_tokens:
            return None
        results = [place for place, each in enumerate(request.messages) if self._may_go(each)]
        old = set(results[: max(0, len(results) - self.config.keep)])
        messages = tuple(
            replace(message, text=CLEARED, citations=()) if place in old else message
            for place, message in enumerate(request.messages)
        )
        return replace(request, messages=messages)

    def _may_go(self, message: ChatMessage) -> bool:
        return message.role is Role.TOOL and message.tool_name not in self.config.keep_tools
