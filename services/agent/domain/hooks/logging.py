"""The hook `logging`: a structured line for every position."""

from typing import ClassVar

import structlog
from pydantic import Field

from services.agent.domain.chat import ModelReply, ModelRequest, ToolResult
from services.agent.domain.hooks.hook import Hook, HookConfig, HookRun, OnFailure
from services.agent.domain.messages import ToolCall
from services.agent.domain.run_models import RunError


class LoggingConfig(HookConfig):
    """What is logged."""

    content: bool = Field(default=False, description="Whether texts and arguments are logged too.")
    max_chars: int = Field(
        default=500,
        ge=1,
        le=10_000,
        description="How much of each text is logged, where texts are.",
    )


class Logging(Hook[LoggingConfig]):
    """Logs each step of a run in a structured line: sizes and names, and texts only if asked to."""

    name = "logging"
    config_type = LoggingConfig
    priority: ClassVar[int] = 0
    on_failure = OnFailure.SKIP

    async def before_agent(self, run: HookRun) -> None:
        self._log("run begins", run, model=run.model.name)

    async def before_model(self, request: ModelRequest, run: HookRun) -> None:
        self._log(
            "model is asked",
            run,
            text=request.messages[-1].text if request.messages else "",
            model=run.model.name,
            messages=len(request.messages),
            chars=sum(len(message.text) for message in request.messages),
            tools=len(request.tools),
        )

    async def after_model(self, reply: ModelReply, run: HookRun) -> None:
        self._log(
            "model replied",
            run,
            text=reply.text,
            chars=len(reply.text),
            finish_reason=reply.finish_reason.value,
            calls=[call.name for call in reply.tool_calls],
            input_tokens=reply.usage.input_tokens if reply.usage else None,
            output_tokens=reply.usage.output_tokens if reply.usage else None,
            by_hook=reply.hook or None,
        )

    async def before_tool(self, call: ToolCall, run: HookRun) -> None:
        chars = len(call.arguments_json)
        self._log(
            "tool is called", run, text=call.arguments_json, tool=call.name, id=call.id, chars=chars
        )

    async def after_tool(self, call: ToolCall, result: ToolResult, run: HookRun) -> None:
        self._log(
            "tool answered",
            run,
            text=result.text,
            tool=call.name,
            id=call.id,
            chars=len(result.text),
            error=result.error,
        )

    async def on_error(self, error: RunError, run: HookRun) -> None:
        self._log("run fails", run, text=error.message, reason=error.reason)

    async def after_agent(self, text: str, run: HookRun) -> None:
        self._log("run ends", run, text=text, chars=len(text))

    def _log(self, event: str, run: HookRun, *, text: str = "", **facts: object) -> None:
        if self.config.content:
            facts["text"] = text[: self.config.max_chars]
        log = structlog.get_logger("hooks.logging")
        log.info(event, run_id=run.run_id, agent_id=run.agent.id, **facts)
