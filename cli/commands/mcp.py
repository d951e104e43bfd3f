"""`chatmind mcp`: shows MCP servers, and approves their tools for agents."""

from typing import Annotated

import typer
from chatmind.agent.v1 import agent_service_pb2, mcp_pb2

from cli.app import confirm, remote
from cli.client import CALL_SECONDS, Gateway
from cli.errors import CommandError
from cli.lookup import one_agent
from cli.output import Output, counted, word
from cli.plain import one_line

app = typer.Typer(help="MCP servers whose tools agents can be given.", no_args_is_help=True)

_Tool = mcp_pb2.McpTool
_Server = mcp_pb2.McpServer
_WAITING = (_Tool.CONSENT_NEW, _Tool.CONSENT_CHANGED)


@app.command("servers")
@remote
def list_servers(gateway: Gateway, output: Output) -> None:
    """List the servers that the operator has declared, and whether they answer."""
    servers = _servers(gateway)
    output.table(
        servers,
        columns=("NAME", "TRANSPORT", "STATE", "PROTOCOL", "TOOLS", "ERROR"),
        rows=(
            (
                server.name,
                word(_Server.Transport.Name, server.transport, prefix="TRANSPORT_"),
                word(_Server.State.Name, server.state, prefix="STATE_"),
                server.protocol_version,
                str(len(server.tools)),
                one_line(server.error),
            )
            for server in servers
        ),
    )


@app.command("tools")
@remote
def list_tools(
    gateway: Gateway,
    output: Output,
    of: Annotated[str, typer.Argument(metavar="[SERVER]", help="Only those of this server.")] = "",
    *,
    agent: Annotated[
        str, typer.Option(help="An agent, by name or id; tells whether it may use each.")
    ] = "",
) -> None:
    """List the tools of the servers; with --agent, what that agent is allowed."""
    agent_id = one_agent(gateway, agent).id if agent else ""
    tools = [
        tool for each in _servers(gateway, agent_id) if of in ("", each.name) for tool in each.tools
    ]
    output.table(
        tools,
        columns=("NAME", "CONSENT", "READ ONLY", "DESCRIPTION"),
        rows=((t.name, _consent(t), "yes" if t.read_only else "", _told(t)) for t in tools),
    )


@app.command("approve")
@remote
def approve(
    gateway: Gateway,
    output: Output,
    agent: Annotated[str, typer.Argument(help="The agent, by name or id.")],
    of: Annotated[str, typer.Argument(metavar="SERVER", help="The server, by name.")],
    *,
    tool: Annotated[
        list[str] | None,
        typer.Option("--tool", help="Only this tool, by the name that models use; repeatable."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Let an agent use the tools of its server that are new or have changed."""
    agent_id = one_agent(gateway, agent).id
    found = [each for each in _servers(gateway, agent_id) if each.name == of]
    if not found:
        raise CommandError(f"no MCP server is called {of!r}; `chatmind mcp servers` lists them")
    (seen,) = found
    if not seen.bound:
        raise CommandError(f"{agent!r} may not use {of!r}; see `chatmind agent update --mcp`")
    if seen.error:
        raise CommandError(seen.error)
    waiting = [each for each in seen.tools if each.consent in _WAITING]
    if tool:
        unknown = {*tool} - {each.name for each in waiting}
        if unknown:
            raise CommandError(f"these do not wait for approval: {', '.join(sorted(unknown))}")
        waiting = [each for each in waiting if each.name in tool]
    if not waiting:
        output.note("nothing waits for approval")
        return
    for each in waiting:
        output.note(f"{each.name} ({_consent(each)}): {_told(each)}")
    if not yes:
        confirm(output, f"Let {agent!r} use {counted(len(waiting), 'tool')}?")
    request = agent_service_pb2.ApproveMcpToolsRequest(
        agent_id=agent_id, server=of, digests=[each.digest for each in waiting]
    )
    approved = gateway.agents.ApproveMcpTools(request, timeout=CALL_SECONDS).mcp_server
    output.message(approved, text=f"approved {counted(len(waiting), 'tool')}")


def _servers(gateway: Gateway, agent_id: str = "") -> list[mcp_pb2.McpServer]:
    request = agent_service_pb2.ListMcpServersRequest(agent_id=agent_id)
    return list(gateway.agents.ListMcpServers(request, timeout=CALL_SECONDS).mcp_servers)


def _consent(tool: mcp_pb2.McpTool) -> str:
    if tool.consent == _Tool.CONSENT_UNSPECIFIED:
        return ""
    return word(_Tool.Consent.Name, tool.consent, prefix="CONSENT_")


def _told(tool: mcp_pb2.McpTool) -> str:
    return one_line(tool.refusal or tool.description)
