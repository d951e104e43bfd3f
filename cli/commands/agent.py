"""`chatmind agent`: manages agents."""

from enum import StrEnum
from typing import Annotated

import typer
from chatmind.agent.v1 import agent_pb2, agent_service_pb2
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.json_format import MessageToJson

from cli.app import confirm, remote
from cli.approvals import ApprovalsOption, NoApprovalsOption, tool_approval
from cli.client import CALL_SECONDS, Gateway, listed
from cli.commands import offers
from cli.errors import CommandError
from cli.hooks import hooks_of
from cli.lookup import one_agent, one_base
from cli.output import Output

app = typer.Typer(help="Agents, and what they can be given.", no_args_is_help=True)
app.add_typer(offers.app)

NameArgument = Annotated[str, typer.Argument(help="The agent, by name or id.")]
OtherPromptOption = Annotated[
    str | None, typer.Option("--prompt", help="Its standing instruction.")
]
OtherTimeZoneOption = Annotated[
    str | None, typer.Option("--time-zone", help="Where its users are; empty means UTC.")
]
OtherBasesOption = Annotated[
    list[str] | None, typer.Option("--base", help="A base it may search, in place of those so far.")
]
OtherToolsOption = Annotated[
    list[str] | None, typer.Option("--tool", help="A tool it may use, in place of those so far.")
]
OtherAgentsOption = Annotated[
    list[str] | None,
    typer.Option("--agent", help="An agent that it may ask, in place of those so far."),
]
OtherHooksOption = Annotated[
    list[str] | None, typer.Option("--hook", help="A hook, in place of those so far.")
]
McpOption = Annotated[
    list[str] | None,
    typer.Option("--mcp", help="An MCP server whose tools it may use; repeatable."),
]
OtherMcpOption = Annotated[
    list[str] | None,
    typer.Option("--mcp", help="An MCP server whose tools it may use, in place of those so far."),
]

_Visibility = agent_pb2.Visibility
_Strategy = agent_pb2.Window.Strategy


class Memory(StrEnum):
    """What of a conversation an agent's model is shown."""

    WINDOW = "window"
    TOKEN_BUDGET = "token-budget"  # noqa: S105 - no password
    COMPACTION = "compaction"

    @property
    def window(self) -> agent_pb2.Window:
        """The window that this is."""
        return agent_pb2.Window(strategy=_Strategy.Value(f"STRATEGY_{self.name}"))


OtherMemoryOption = Annotated[
    Memory | None, typer.Option("--memory", help="What of a conversation its model is shown.")
]


@app.command("list")
@remote
def list_agents(gateway: Gateway, output: Output) -> None:
    """List the agents you can see."""
    agents = list(
        listed(
            gateway.agents.ListAgents,
            agent_service_pb2.ListAgentsRequest(),
            lambda page: page.agents,
        )
    )
    output.table(
        agents,
        columns=("NAME", "MODEL", "BASES", "ID"),
        rows=(
            (a.display_name, a.model or "default", str(len(a.knowledge_base_ids)), a.id)
            for a in agents
        ),
    )


@app.command("create")
@remote
def create_agent(
    gateway: Gateway,
    output: Output,
    name: Annotated[str, typer.Argument(help="What people call it.")],
    *,
    description: Annotated[
        str, typer.Option(help="What it is for; agents that may ask it are told so.")
    ] = "",
    system_prompt: Annotated[str, typer.Option("--prompt", help="Its standing instruction.")] = "",
    model: Annotated[str, typer.Option(help="A model by name; empty means the default.")] = "",
    base: Annotated[
        list[str] | None, typer.Option("--base", help="A base it may search; repeatable.")
    ] = None,
    tool: Annotated[
        list[str] | None, typer.Option("--tool", help="A tool it may use; repeatable.")
    ] = None,
    agent: Annotated[
        list[str] | None,
        typer.Option("--agent", help="Another agent that it may ask, by name or id; repeatable."),
    ] = None,
    approval: ApprovalsOption = None,
    hook: Annotated[
        list[str] | None,
        typer.Option("--hook", help="A hook, as NAME or NAME=CONFIGURATION in JSON; repeatable."),
    ] = None,
    memory: Annotated[
        Memory, typer.Option(help="What of a conversation its model is shown.")
    ] = Memory.WINDOW,
    time_zone: Annotated[
        str, typer.Option(help="Where its users are, such as Asia/Shanghai; empty means UTC.")
    ] = "",
    mcp: McpOption = None,
    shared: Annotated[bool, typer.Option(help="Let everyone in the tenant talk to it.")] = False,
) -> None:
    """Create an agent."""
    new = agent_pb2.Agent(
        display_name=name,
        description=description,
        system_prompt=system_prompt,
        model=model,
        knowledge_base_ids=[one_base(gateway, each).id for each in base or ()],
        tools=tool or (),
        time_zone=time_zone,
        approvals=map(tool_approval, approval or ()),
        agent_ids=[one_agent(gateway, each).id for each in agent or ()],
        hooks=hooks_of(hook or ()),
        window=memory.window,
        mcp_servers=mcp or (),
        visibility=_Visibility.VISIBILITY_TENANT if shared else _Visibility.VISIBILITY_PRIVATE,
    )
    request = agent_service_pb2.CreateAgentRequest(agent=new)
    created = gateway.agents.CreateAgent(request, timeout=CALL_SECONDS).agent
    output.message(created, text=created.id)


@app.command("update")
@remote
def update_agent(
    gateway: Gateway,
    output: Output,
    name: NameArgument,
    *,
    new_name: Annotated[str | None, typer.Option("--name", help="What people call it.")] = None,
    description: Annotated[str | None, typer.Option(help="What it is for.")] = None,
    system_prompt: OtherPromptOption = None,
    model: Annotated[str | None, typer.Option(help="A model by name.")] = None,
    time_zone: OtherTimeZoneOption = None,
    base: OtherBasesOption = None,
    no_bases: Annotated[bool, typer.Option("--no-bases", help="Let it search none.")] = False,
    tool: OtherToolsOption = None,
    no_tools: Annotated[bool, typer.Option("--no-tools", help="Take its tools away.")] = False,
    agent: OtherAgentsOption = None,
    no_agents: Annotated[bool, typer.Option("--no-agents", help="Let it ask none.")] = False,
    hook: OtherHooksOption = None,
    no_hooks: Annotated[bool, typer.Option("--no-hooks", help="Take its hooks away.")] = False,
    approval: ApprovalsOption = None,
    no_approvals: NoApprovalsOption = False,
    memory: OtherMemoryOption = None,
    mcp: OtherMcpOption = None,
    no_mcp: Annotated[bool, typer.Option("--no-mcp", help="Take its MCP servers away.")] = False,
) -> None:
    """Change what is named, and nothing else; runs that go on keep what they began with."""
    lists = {
        "knowledge_base_ids": ("--base", base, "--no-bases", no_bases),
        "tools": ("--tool", tool, "--no-tools", no_tools),
        "agent_ids": ("--agent", agent, "--no-agents", no_agents),
        "hooks": ("--hook", hook, "--no-hooks", no_hooks),
        "approvals": ("--approval", approval, "--no-approvals", no_approvals),
        "mcp_servers": ("--mcp", mcp, "--no-mcp", no_mcp),
    }
    given = {
        "display_name": new_name is not None,
        "description": description is not None,
        "system_prompt": system_prompt is not None,
        "model": model is not None,
        "time_zone": time_zone is not None,
        "window.strategy": memory is not None,
        **_changed(lists),
    }
    new = agent_pb2.Agent(
        id=one_agent(gateway, name).id,
        display_name=new_name or "",
        description=description or "",
        system_prompt=system_prompt or "",
        model=model or "",
        time_zone=time_zone or "",
        knowledge_base_ids=[one_base(gateway, each).id for each in base or ()],
        tools=tool or (),
        agent_ids=[one_agent(gateway, each).id for each in agent or ()],
        hooks=hooks_of(hook or ()),
        approvals=map(tool_approval, approval or ()),
        window=None if memory is None else memory.window,
        mcp_servers=mcp or (),
    )
    request = agent_service_pb2.UpdateAgentRequest(agent=new, update_mask=_mask(given))
    updated = gateway.agents.UpdateAgent(request, timeout=CALL_SECONDS).agent
    output.message(updated, text=updated.id)


@app.command("show")
@remote
def show_agent(
    gateway: Gateway,
    output: Output,
    name: NameArgument,
) -> None:
    """Show an agent in full."""
    agent = one_agent(gateway, name)
    text = MessageToJson(agent, preserving_proto_field_name=True, ensure_ascii=False)
    output.message(agent, text=text)


@app.command("delete")
@remote
def delete_agent(
    gateway: Gateway,
    output: Output,
    name: NameArgument,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete an agent; its sessions stay readable."""
    if not yes:
        confirm(output, f"Delete agent {name!r} for good?")
    agent = one_agent(gateway, name)
    request = agent_service_pb2.DeleteAgentRequest(agent_id=agent.id)
    gateway.agents.DeleteAgent(request, timeout=CALL_SECONDS)
    output.message(agent, text=f"deleted {agent.id}")


def _changed(lists: dict[str, tuple[str, list[str] | None, str, bool]]) -> dict[str, bool]:
    """Whether each list is set or taken away.

    Args:
        lists: by its path: the option that sets it and what it was given, and likewise the one that
            takes all away.

    Raises:
        CommandError: the two options of a list are both given.
    """
    for setting, given, taking, taken in lists.values():
        if given and taken:
            raise CommandError(f"{setting} and {taking} exclude each other")
    return {path: bool(given) or taken for path, (_, given, _, taken) in lists.items()}


def _mask(given: dict[str, bool]) -> FieldMask:
    """The paths that are given.

    Raises:
        CommandError: there is none.
    """
    mask = FieldMask(paths=[path for path, is_given in given.items() if is_given])
    if not mask.paths:
        raise CommandError("nothing is to be changed; `chatmind agent update --help` lists it")
    return mask
