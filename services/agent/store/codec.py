"""Settings, calls and citations as JSON for jsonb columns, and back; unset values are left out."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from services.agent.domain.messages import Citation, ToolCall
from services.agent.domain.models import (
    AgentId,
    AgentSettings,
    ApprovalMode,
    ChunkId,
    DocumentId,
    HookSetting,
    KnowledgeBaseId,
    McpBinding,
    ModelOptions,
    Retrieval,
    RunLimits,
    ToolApproval,
    ToolCallId,
    Visibility,
    Window,
    WindowStrategy,
)
from services.agent.domain.run_models import Offered

JsonObject = dict[str, Any]
"""What the driver's jsonb codec takes and gives."""


def options_to_json(options: ModelOptions) -> JsonObject:
    """Model options as JSON."""
    return _present(asdict(options))


def options_from_json(value: Mapping[str, Any]) -> ModelOptions:
    """Model options from JSON."""
    return ModelOptions(**{**value, "stop": tuple(value.get("stop", ()))})


def retrieval_to_json(retrieval: Retrieval) -> JsonObject:
    """Retrieval settings as JSON."""
    return _present(asdict(retrieval))


def limits_to_json(limits: RunLimits) -> JsonObject:
    """Limits as JSON, the duration in seconds."""
    duration = limits.max_duration
    seconds = None if duration is None else duration.total_seconds()
    return _present({**asdict(limits), "max_duration": seconds})


def limits_from_json(value: Mapping[str, Any]) -> RunLimits:
    """Limits from JSON."""
    seconds = value.get("max_duration")
    duration = None if seconds is None else timedelta(seconds=seconds)
    return RunLimits(**{**value, "max_duration": duration})


def window_to_json(window: Window) -> JsonObject:
    """A window as JSON."""
    return _present({**asdict(window), "strategy": window.strategy.value})


def window_from_json(value: Mapping[str, Any]) -> Window:
    """A window from JSON; one that names no strategy is from before there were several."""
    strategy = WindowStrategy(value.get("strategy", WindowStrategy.WINDOW.value))
    return Window(**{**value, "strategy": strategy})


def settings_from_json(value: Mapping[str, Any]) -> AgentSettings:
    """An agent's settings from its row, or from that as JSON."""
    return AgentSettings(
        display_name=value["display_name"],
        description=value["description"],
        system_prompt=value["system_prompt"],
        model=value["model"],
        options=options_from_json(value["options"]),
        tools=tuple(value["tools"]),
        knowledge_base_ids=tuple(KnowledgeBaseId(str(id_)) for id_ in value["knowledge_base_ids"]),
        retrieval=Retrieval(**value["retrieval"]),
        limits=limits_from_json(value["limits"]),
        window=window_from_json(value["context_window"]),
        visibility=Visibility(value["visibility"]),
        # Runs that an earlier release has taken have none of these.
        agent_ids=tuple(AgentId(str(id_)) for id_ in value.get("agent_ids", ())),
        hooks=tuple(HookSetting(**hook) for hook in value.get("hooks", ())),
        mcp_servers=_bindings_from_json(value.get("mcp_servers", ())),
        time_zone=value.get("time_zone", ""),
        approvals=approvals_from_json(value.get("approvals", ())),
    )


def hooks_to_json(hooks: Sequence[HookSetting]) -> list[JsonObject]:
    """An agent's hooks as JSON."""
    return [_present(asdict(hook)) for hook in hooks]


def bindings_to_json(bindings: Sequence[McpBinding]) -> list[JsonObject]:
    """MCP servers and what of them is approved, as JSON."""
    return [{"server": each.server, "approved": dict(each.approved)} for each in bindings]


def _bindings_from_json(value: Sequence[Mapping[str, Any]]) -> tuple[McpBinding, ...]:
    return tuple(McpBinding(each["server"], each["approved"]) for each in value)


def approvals_to_json(approvals: Sequence[ToolApproval]) -> list[JsonObject]:
    """Which tools' calls wait for a person, as JSON."""
    return [{"tool": each.tool, "mode": each.mode.value} for each in approvals]


def approvals_from_json(value: Sequence[Mapping[str, Any]]) -> tuple[ToolApproval, ...]:
    """Which tools' calls wait for a person, from JSON."""
    return tuple(ToolApproval(each["tool"], ApprovalMode(each["mode"])) for each in value)


def calls_to_json(calls: Sequence[ToolCall]) -> list[JsonObject]:
    """Tool calls as JSON."""
    return [asdict(call) for call in calls]


def calls_from_json(value: Sequence[Mapping[str, Any]]) -> tuple[ToolCall, ...]:
    """Tool calls from JSON."""
    return tuple(
        ToolCall(ToolCallId(call["id"]), call["name"], call["arguments_json"]) for call in value
    )


def citations_to_json(citations: Sequence[Citation]) -> list[JsonObject]:
    """Citations as JSON."""
    return [asdict(citation) for citation in citations]


def citations_from_json(value: Sequence[Mapping[str, Any]]) -> tuple[Citation, ...]:
    """Citations from JSON."""
    return tuple(
        Citation(
            label=each["label"],
            knowledge_base_id=KnowledgeBaseId(each["knowledge_base_id"]),
            document_id=DocumentId(each["document_id"]),
            chunk_id=ChunkId(each["chunk_id"]),
            document_name=each["document_name"],
            heading_path=tuple(each["heading_path"]),
            start_line=each["start_line"],
            end_line=each["end_line"],
            score=each["score"],
        )
        for each in value
    )


def offered_to_json(offered: Offered) -> JsonObject:
    """What a run was offered, as JSON."""
    return asdict(offered)


def offered_from_json(value: Mapping[str, Any]) -> Offered:
    """What a run was offered, from JSON."""
    return Offered(
        tools=tuple(value["tools"]),
        knowledge_base_ids=tuple(KnowledgeBaseId(id_) for id_ in value["knowledge_base_ids"]),
        model=value["model"],
        hooks=tuple(value.get("hooks", ())),
    )


def _present(value: JsonObject) -> JsonObject:
    return {key: item for key, item in value.items() if item is not None}
