"""`chatmind session`: looks at conversations."""

from typing import Annotated

import typer
from chatmind.agent.v1 import agent_service_pb2, session_pb2

from cli.app import remote
from cli.client import Gateway, listed
from cli.lookup import one_session
from cli.output import Output, word

app = typer.Typer(help="Sessions: conversations with agents.", no_args_is_help=True)

_Role = session_pb2.Message.Role


@app.command("list")
@remote
def list_sessions(
    gateway: Gateway,
    output: Output,
    *,
    run: Annotated[
        str, typer.Option("--run", help="Those of the agents that this run asked, by id.")
    ] = "",
    every: Annotated[
        bool, typer.Option("--all", help="Those of agents that agents asked, too.")
    ] = False,
) -> None:
    """List your sessions, newest first."""
    request = agent_service_pb2.ListSessionsRequest(parent_run_id=run, include_sub_sessions=every)
    sessions = list(listed(gateway.agents.ListSessions, request, lambda page: page.sessions))
    output.table(
        sessions,
        columns=("TITLE", "MESSAGES", "ACTIVE RUN", "ID"),
        rows=((s.title, str(s.last_sequence), s.active_run_id, s.id) for s in sessions),
    )


@app.command("show")
@remote
def show_session(
    gateway: Gateway,
    output: Output,
    session: Annotated[str, typer.Argument(help="The session, by id.")],
) -> None:
    """Show all messages of a session, oldest first."""
    request = agent_service_pb2.ListMessagesRequest(session_id=one_session(gateway, session).id)
    for message in listed(gateway.agents.ListMessages, request, lambda page: page.messages):
        output.message(message, text=_readable(message))


def _readable(message: session_pb2.Message) -> str:
    role = word(_Role.Name, message.role, prefix="ROLE_")
    discarded = ", discarded" if message.discarded else ""
    head = f"{message.sequence}  {role}{discarded}  {message.create_time.ToJsonString()}"
    calls = [f"→ {call.name} {call.arguments_json}" for call in message.tool_calls]
    body = [f"    {line}" for text in (*calls, message.text) for line in text.splitlines()]
    return "\n".join((head, *body, ""))
