"""`chatmind session`: looks at conversations."""

from typing import Annotated

import typer
from chatmind.agent.v1 import agent_service_pb2, chat_memory_pb2, session_pb2
from google.protobuf.field_mask_pb2 import FieldMask

from cli.app import remote
from cli.client import CALL_SECONDS, Gateway, listed
from cli.errors import CommandError
from cli.lookup import one_session
from cli.output import Output, word

app = typer.Typer(help="Sessions: conversations with agents.", no_args_is_help=True)

_Role = session_pb2.Message.Role
_COMPACT_SECONDS = 600.0


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


@app.command("memory")
@remote
def show_memory(
    gateway: Gateway,
    output: Output,
    session: Annotated[str, typer.Argument(help="The session, by id.")],
) -> None:
    """Show what its agent's model would be shown of a session now, before the next question."""
    request = agent_service_pb2.GetChatMemoryRequest(session_id=session)
    memory = gateway.agents.GetChatMemory(request, timeout=CALL_SECONDS).memory
    said = [_readable(message) for message in memory.messages]
    about = f"about {memory.tokens} tokens"
    output.message(memory, text="\n".join([*_summary(memory), *said, about]))


@app.command("clear")
@remote
def clear_memory(
    gateway: Gateway,
    output: Output,
    session: Annotated[str, typer.Argument(help="The session, by id.")],
) -> None:
    """Have the model forget what was said so far; all messages stay readable."""
    request = agent_service_pb2.ClearChatMemoryRequest(session_id=session)
    cleared = gateway.agents.ClearChatMemory(request, timeout=CALL_SECONDS)
    through = cleared.cleared_through_sequence
    output.message(cleared, text=f"forgotten through message {through} and its answer")


@app.command("update")
@remote
def update_session(
    gateway: Gateway,
    output: Output,
    session: Annotated[str, typer.Argument(help="The session, by id.")],
    *,
    title: Annotated[str | None, typer.Option(help="Its name in lists.")] = None,
    time_zone: Annotated[
        str | None, typer.Option(help="Where you are; empty leaves it to the agent.")
    ] = None,
) -> None:
    """Change what is named, and nothing else."""
    given = {"title": title, "time_zone": time_zone}
    mask = FieldMask(paths=[path for path, value in given.items() if value is not None])
    if not mask.paths:
        raise CommandError("nothing is to be changed; `chatmind session update --help` lists it")
    new = session_pb2.Session(id=session, title=title or "", time_zone=time_zone or "")
    request = agent_service_pb2.UpdateSessionRequest(session=new, update_mask=mask)
    updated = gateway.agents.UpdateSession(request, timeout=CALL_SECONDS).session
    output.message(updated, text=updated.id)


@app.command("compact")
@remote
def compact_session(
    gateway: Gateway,
    output: Output,
    session: Annotated[str, typer.Argument(help="The session, by id.")],
) -> None:
    """Summarise the older part of a session at once; all messages stay readable."""
    request = agent_service_pb2.CompactSessionRequest(session_id=session)
    done = gateway.agents.CompactSession(request, timeout=_COMPACT_SECONDS)
    told = "nothing is old enough to be summarised"
    if done.messages:
        told = (
            f"{done.messages} messages of about {done.tokens_before} tokens are a summary of "
            f"{done.tokens_after} now:\n\n{done.summary.text}"
        )
    output.message(done, text=told)


def _summary(memory: chat_memory_pb2.ChatMemory) -> list[str]:
    if not memory.HasField("summary"):
        return []
    summary = memory.summary
    head = f"summary of {summary.messages} messages, through {summary.through_sequence}"
    texts = (f"first question: {summary.first_question}", summary.text)
    lines = [f"    {line}" for text in texts for line in text.splitlines()]
    return ["\n".join((head, *lines, ""))]


def _readable(message: session_pb2.Message) -> str:
    role = word(_Role.Name, message.role, prefix="ROLE_")
    discarded = ", discarded" if message.discarded else ""
    head = f"{message.sequence}  {role}{discarded}  {message.create_time.ToJsonString()}"
    calls = [f"→ {call.name} {call.arguments_json}" for call in message.tool_calls]
    body = [f"    {line}" for text in (*calls, message.text) for line in text.splitlines()]
    return "\n".join((head, *body, ""))
