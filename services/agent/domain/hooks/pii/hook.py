"""The hook `pii_masking`: keeps personal data from the model and out of what is stored."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar, Final

from pydantic import Field

from services.agent.domain.chat import ChatMessage, ModelReply, ModelRequest, ToolResult
from services.agent.domain.hooks.hook import Hook, HookConfig, HookRun
from services.agent.domain.hooks.pii.find import Kind
from services.agent.domain.hooks.pii.mask import Masker, Strategy
from services.agent.domain.messages import Role, ToolCall

_LONG: Final = 20_000
"""Characters from which on a text is masked in a thread, so that others are not held up."""


class PiiMaskingConfig(HookConfig):
    """What is masked, where, and how."""

    kinds: tuple[Kind, ...] = Field(
        default=tuple(Kind), min_length=1, max_length=len(Kind), description="What is masked."
    )
    strategy: Strategy = Field(default=Strategy.REDACT, description="What stands in its place.")
    strategies: dict[Kind, Strategy] = Field(
        default={},
        description="What stands in the place of single kinds, where it is something else.",
    )
    input: bool = Field(default=True, description="Whether what the model reads is masked.")
    output: bool = Field(default=True, description="Whether what the model writes is masked.")
    tool_results: bool = Field(
        default=True, description="Whether results are masked before they are kept."
    )
    tool_arguments: bool = Field(
        default=True, description="Whether the arguments of calls are masked."
    )


class PiiMasking(Hook[PiiMaskingConfig]):
    """Masks emails, phone and card numbers, IBANs, IP addresses, Chinese resident ids and API keys.

    What the user said stays stored as it was said; the model reads it masked. Replies, tool
    arguments and tool results are masked before they are stored.
    """

    name = "pii_masking"
    config_type = PiiMaskingConfig
    priority: ClassVar[int] = 10
    seconds: ClassVar[float] = 60.0

    def __init__(self, config: PiiMaskingConfig) -> None:
        super().__init__(config)
        how = {kind: config.strategies.get(kind, config.strategy) for kind in config.kinds}
        self._masker = Masker(how)

    async def before_model(self, request: ModelRequest, run: HookRun) -> ModelRequest | None:
        if not self.config.input:
            return None
        own = 1 if request.messages and request.messages[0].role is Role.SYSTEM else 0
        said = [await self._message(message, run) for message in request.messages[own:]]
        return replace(request, messages=(*request.messages[:own], *said))

    async def after_model(self, reply: ModelReply, run: HookRun) -> ModelReply | None:
        text, reasoning = reply.text, reply.reasoning
        if self.config.output:
            text, reasoning = await self._text(text, run), await self._text(reasoning, run)
        calls = tuple([await self._call(call, run) for call in reply.tool_calls])
        return replace(reply, text=text, reasoning=reasoning, tool_calls=calls)

    async def before_tool(self, call: ToolCall, run: HookRun) -> ToolCall | None:
        return await self._call(call, run)

    async def after_tool(
        self, call: ToolCall, result: ToolResult, run: HookRun
    ) -> ToolResult | None:
        if not self.config.tool_results:
            return None
        text, whole = await self._text(result.text, run), result.whole
        if whole is not None:
            masked = await self._aside(self._masker.aligned, whole.text, run)
            whole = replace(whole, text=masked)
        return replace(result, text=text, whole=whole)

    async def after_agent(self, text: str, run: HookRun) -> str | None:
        return await self._text(text, run) if self.config.output else None

    async def _message(self, message: ChatMessage, run: HookRun) -> ChatMessage:
        return replace(
            message,
            text=await self._text(message.text, run),
            reasoning=await self._text(message.reasoning, run),
            tool_calls=tuple([await self._call(call, run) for call in message.tool_calls]),
        )

    async def _call(self, call: ToolCall, run: HookRun) -> ToolCall:
        if not self.config.tool_arguments:
            return call
        masked = await self._aside(self._masker.arguments, call.arguments_json, run)
        return replace(call, arguments_json=masked)

    async def _text(self, text: str, run: HookRun) -> str:
        return await self._aside(self._masker.text, text, run)

    async def _aside(self, mask: Callable[[str], str], text: str, run: HookRun) -> str:
        self._masker.salt = f"{run.agent.tenant}/{run.agent.id}"
        return mask(text) if len(text) < _LONG else await asyncio.to_thread(mask, text)
