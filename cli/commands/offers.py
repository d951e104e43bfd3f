"""`chatmind agent models`, `tools` and `hooks`: what agents can be given."""

from typing import Final

import typer
from chatmind.agent.v1 import agent_service_pb2, model_pb2, tool_pb2

from cli.app import remote
from cli.client import CALL_SECONDS, Gateway
from cli.output import Output

app = typer.Typer()

_EFFECTS: Final = {
    tool_pb2.Tool.EFFECT_READ_ONLY: "reads only",
    tool_pb2.Tool.EFFECT_STATE_CHANGING: "changes state",
    tool_pb2.Tool.EFFECT_OUTBOUND: "reaches out",
}
_ENDPOINT_STATES: Final = {
    model_pb2.Model.Endpoint.STATE_HEALTHY: "healthy",
    model_pb2.Model.Endpoint.STATE_RESTING: "resting",
    model_pb2.Model.Endpoint.STATE_PROBING: "probing",
}


@app.command("models")
@remote
def list_models(gateway: Gateway, output: Output) -> None:
    """List the models that agents can use."""
    request = agent_service_pb2.ListModelsRequest()
    models = gateway.agents.ListModels(request, timeout=CALL_SECONDS).models
    output.table(
        models,
        columns=("NAME", "MODEL", "DEFAULT", "SERVERS"),
        rows=((m.name, m.model, "yes" if m.default else "", _servers(m)) for m in models),
    )


def _servers(model: model_pb2.Model) -> str:
    """How many of a model's servers are in which state."""
    states = [_ENDPOINT_STATES.get(each.state, "unknown") for each in model.endpoints]
    return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))


@app.command("tools")
@remote
def list_tools(gateway: Gateway, output: Output) -> None:
    """List the tools that agents can be given; those of MCP servers: `chatmind mcp tools`."""
    request = agent_service_pb2.ListToolsRequest()
    tools = gateway.agents.ListTools(request, timeout=CALL_SECONDS).tools
    output.table(
        tools,
        columns=("NAME", "EFFECT", "TRUSTED", "DOES"),
        rows=(
            (
                t.name,
                _EFFECTS.get(t.effect, "unknown"),
                "yes" if t.trusted else "",
                t.description.partition("\n")[0],
            )
            for t in tools
        ),
    )


@app.command("hooks")
@remote
def list_hooks(gateway: Gateway, output: Output) -> None:
    """List the hooks that agents can be given."""
    request = agent_service_pb2.ListHooksRequest()
    hooks = gateway.agents.ListHooks(request, timeout=CALL_SECONDS).hooks
    output.table(
        hooks,
        columns=("NAME", "PRIORITY", "DOES"),
        rows=((h.name, str(h.priority), h.description) for h in hooks),
    )
