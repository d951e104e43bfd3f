"""Agents, tools and models between the wire and the domain."""

from collections.abc import Iterable, Sequence
from typing import Final

from chatmind.agent.v1 import agent_pb2, model_pb2, tool_pb2
from google.protobuf.field_mask_pb2 import FieldMask

from services.agent.api.convert.common import not_offered, to_time_zone
from services.agent.api.convert.hooks import from_hooks, to_hooks
from services.agent.api.convert.windows import from_window, to_window
from services.agent.domain.chat import (
    EndpointInfo,
    EndpointState,
    ModelInfo,
    Provider,
    ToolEffect,
    ToolProtocol,
    ToolSpec,
)
from services.agent.domain.models import (
    Agent,
    AgentId,
    AgentSettings,
    ApprovalMode,
    KnowledgeBaseId,
    McpBinding,
    ModelOptions,
    Retrieval,
    RunLimits,
    ToolApproval,
    Visibility,
)
from services.agent.domain.patch import paths
from services.common.convert import (
    canonical_id,
    from_duration,
    from_json,
    from_time,
    to_paths,
    to_text,
)
from services.common.errors import InvalidArgumentError

_VISIBILITIES: Final = {
    agent_pb2.VISIBILITY_UNSPECIFIED: Visibility.PRIVATE,
    agent_pb2.VISIBILITY_PRIVATE: Visibility.PRIVATE,
    agent_pb2.VISIBILITY_TENANT: Visibility.TENANT,
}
_FROM_VISIBILITY: Final = {
    Visibility.PRIVATE: agent_pb2.VISIBILITY_PRIVATE,
    Visibility.TENANT: agent_pb2.VISIBILITY_TENANT,
}
_MODES: Final = {
    agent_pb2.ToolApproval.MODE_ALWAYS: ApprovalMode.ALWAYS,
    agent_pb2.ToolApproval.MODE_NEVER: ApprovalMode.NEVER,
}
_FROM_MODE: Final = {mode: value for value, mode in _MODES.items()}
_PROVIDERS: Final = {
    Provider.OPENAI: model_pb2.Model.PROVIDER_OPENAI,
    Provider.OFFLINE: model_pb2.Model.PROVIDER_OFFLINE,
}
_TOOL_PROTOCOLS: Final = {
    ToolProtocol.NATIVE: model_pb2.Model.TOOL_PROTOCOL_NATIVE,
    ToolProtocol.TAGS: model_pb2.Model.TOOL_PROTOCOL_TAGS,
}
_ENDPOINT_STATES: Final = {
    EndpointState.HEALTHY: model_pb2.Model.Endpoint.STATE_HEALTHY,
    EndpointState.RESTING: model_pb2.Model.Endpoint.STATE_RESTING,
    EndpointState.PROBING: model_pb2.Model.Endpoint.STATE_PROBING,
}
_EFFECTS: Final = {
    ToolEffect.READ_ONLY: tool_pb2.Tool.EFFECT_READ_ONLY,
    ToolEffect.STATE_CHANGING: tool_pb2.Tool.EFFECT_STATE_CHANGING,
    ToolEffect.OUTBOUND: tool_pb2.Tool.EFFECT_OUTBOUND,
}
# Accepted in a mask, since naming them with their only value is harmless; nothing is stored.
_NOT_KEPT: Final = frozenset({"retrieval.mode", "memory_bank_id", "memory_enabled"})


def to_settings(agent: agent_pb2.Agent) -> AgentSettings:
    """What an agent on the wire is to be like; output-only fields are left aside.

    Raises:
        InvalidArgumentError: it asks for what is not offered yet, or a text cannot be kept.
    """
    _refuse_what_is_not_offered(agent)
    return AgentSettings(
        display_name=to_text(agent.display_name, field="agent.display_name", max_bytes=200),
        description=to_text(agent.description, field="agent.description", max_bytes=4000),
        system_prompt=to_text(agent.system_prompt, field="agent.system_prompt", max_bytes=65_536),
        model=to_text(agent.model, field="agent.model", max_bytes=200),
        options=_to_options(agent.options),
        tools=tuple(agent.tools),
        knowledge_base_ids=tuple(
            KnowledgeBaseId(canonical_id(base_id)) for base_id in agent.knowledge_base_ids
        ),
        retrieval=_to_retrieval(agent.retrieval),
        limits=_to_limits(agent.limits),
        window=to_window(agent.window),
        visibility=_VISIBILITIES[agent.visibility],
        agent_ids=tuple(AgentId(canonical_id(agent_id)) for agent_id in agent.agent_ids),
        hooks=to_hooks(agent.hooks),
        mcp_servers=tuple(map(McpBinding, agent.mcp_servers)),
        time_zone=to_time_zone(agent.time_zone, field="agent.time_zone"),
        approvals=_to_approvals(agent.approvals),
    )


def to_changes(agent: agent_pb2.Agent, mask: FieldMask) -> tuple[AgentSettings, frozenset[str]]:
    """The new settings and the paths of those that change; what is not named is not looked at.

    Raises:
        InvalidArgumentError: a path is unknown or cannot be changed; or as `to_settings` does.
    """
    named = to_paths(mask, changeable=paths() | _NOT_KEPT)
    masked = agent_pb2.Agent()
    mask.MergeMessage(agent, masked, True, True)
    return to_settings(masked), named - _NOT_KEPT


def from_agent(value: Agent) -> agent_pb2.Agent:
    """An agent for the wire."""
    kept = value.settings
    return agent_pb2.Agent(
        id=value.id,
        display_name=kept.display_name,
        description=kept.description,
        system_prompt=kept.system_prompt,
        model=kept.model,
        options=agent_pb2.ModelOptions(
            temperature=kept.options.temperature,
            top_p=kept.options.top_p,
            max_output_tokens=kept.options.max_output_tokens,
            stop=kept.options.stop,
            seed=kept.options.seed,
        ),
        tools=kept.tools,
        knowledge_base_ids=kept.knowledge_base_ids,
        retrieval=agent_pb2.Retrieval(
            mode=agent_pb2.Retrieval.MODE_TOOL,
            top_k=kept.retrieval.top_k,
            min_score=kept.retrieval.min_score,
        ),
        limits=_from_limits(kept.limits),
        window=from_window(kept.window),
        visibility=_FROM_VISIBILITY[kept.visibility],
        hooks=from_hooks(kept.hooks),
        approvals=(
            agent_pb2.ToolApproval(tool=each.tool, mode=_FROM_MODE[each.mode])
            for each in kept.approvals
        ),
        owner_user_id=value.owner_user_id,
        create_time=from_time(value.create_time),
        update_time=from_time(value.update_time),
        agent_ids=kept.agent_ids,
        mcp_servers=[binding.server for binding in kept.mcp_servers],
        time_zone=kept.time_zone,
    )


def from_tools(specs: Iterable[ToolSpec]) -> list[tool_pb2.Tool]:
    """Tools for the wire."""
    return [
        tool_pb2.Tool(
            name=spec.name,
            description=spec.description,
            input_schema=from_json(spec.input_schema),
            idempotent=spec.idempotent,
            effect=_EFFECTS[spec.effect],
            trusted=spec.trusted,
        )
        for spec in specs
    ]


def from_models(infos: Iterable[ModelInfo]) -> list[model_pb2.Model]:
    """Models for the wire."""
    return [
        model_pb2.Model(
            name=info.name,
            model=info.model,
            provider=_PROVIDERS[info.provider],
            context_tokens=info.context_tokens,
            tool_protocol=_TOOL_PROTOCOLS[info.tool_protocol],
            default=info.default,
            endpoints=map(_from_endpoint, info.endpoints),
        )
        for info in infos
    ]


def _from_endpoint(info: EndpointInfo) -> model_pb2.Model.Endpoint:
    return model_pb2.Model.Endpoint(
        place=info.place,
        priority=info.priority,
        weight=info.weight,
        max_concurrent=info.max_concurrent,
        state=_ENDPOINT_STATES[info.state],
        calls=info.calls,
    )


def _refuse_what_is_not_offered(value: agent_pb2.Agent) -> None:
    if value.retrieval.mode == agent_pb2.Retrieval.MODE_IMPLICIT:
        raise not_offered("agent.retrieval.mode")
    if value.memory_bank_id:
        raise not_offered("agent.memory_bank_id")
    if value.memory_enabled:
        raise not_offered("agent.memory_enabled")


def _to_options(value: agent_pb2.ModelOptions) -> ModelOptions:
    return ModelOptions(
        temperature=value.temperature if value.HasField("temperature") else None,
        top_p=value.top_p if value.HasField("top_p") else None,
        max_output_tokens=value.max_output_tokens if value.HasField("max_output_tokens") else None,
        stop=tuple(
            to_text(stop, field=f"agent.options.stop[{place}]", max_bytes=100)
            for place, stop in enumerate(value.stop)
        ),
        seed=value.seed if value.HasField("seed") else None,
    )


def _to_approvals(values: Sequence[agent_pb2.ToolApproval]) -> tuple[ToolApproval, ...]:
    seen = set[str]()
    for place, value in enumerate(values):
        if value.tool in seen:
            raise InvalidArgumentError.of_field(
                f"agent.approvals[{place}].tool", "must not be named twice"
            )
        seen.add(value.tool)
    return tuple(ToolApproval(value.tool, _MODES[value.mode]) for value in values)


def _to_retrieval(value: agent_pb2.Retrieval) -> Retrieval:
    return Retrieval(
        top_k=value.top_k if value.HasField("top_k") else None,
        min_score=value.min_score if value.HasField("min_score") else None,
    )


def _to_limits(value: agent_pb2.RunLimits) -> RunLimits:
    return RunLimits(
        max_steps=value.max_steps if value.HasField("max_steps") else None,
        max_tool_calls=value.max_tool_calls if value.HasField("max_tool_calls") else None,
        max_tokens=value.max_tokens if value.HasField("max_tokens") else None,
        max_duration=value.max_duration.ToTimedelta() if value.HasField("max_duration") else None,
    )


def _from_limits(limits: RunLimits) -> agent_pb2.RunLimits:
    return agent_pb2.RunLimits(
        max_steps=limits.max_steps,
        max_tool_calls=limits.max_tool_calls,
        max_tokens=limits.max_tokens,
        max_duration=None if limits.max_duration is None else from_duration(limits.max_duration),
    )
