"""`chatmind chat`: a conversation in the terminal."""

import sys
from collections.abc import Iterator
from typing import Annotated

import typer
from chatmind.gateway.v1 import message_pb2
from rich.markdown import Markdown

from cli.app import remote
from cli.client import Gateway
from cli.conversation import Event, answer, find_agent, send
from cli.output import Output, as_dict

_Role = message_pb2.Message.Role
_State = message_pb2.RunUpdate.State


@remote
def chat(
    gateway: Gateway,
    output: Output,
    message: Annotated[
        str | None, typer.Argument(help="Say this and print the answer; without it, converse.")
    ] = None,
    *,
    agent: Annotated[str, typer.Option("--agent", help="Whom to talk to, by name.")] = "",
    session: Annotated[str, typer.Option("--session", help="Continue a session, by id.")] = "",
) -> None:
    """Talk to an agent."""
    agent_id = "" if session else find_agent(gateway, agent).id
    ok = True
    for text in [message] if message is not None else _typed(output):
        session, ok = _turn(gateway, output, text=text, session_id=session, agent_id=agent_id)
    if session and not output.as_json:
        output.note(f"continue with: chatmind chat --session {session}")
    if not ok:
        raise typer.Exit(1)


def _turn(
    gateway: Gateway, output: Output, *, text: str, session_id: str, agent_id: str
) -> tuple[str, bool]:
    """Says something and prints all that follows; gives the session and whether it went well."""
    sent = send(gateway, text, session_id=session_id, agent_id=agent_id)
    ok = True
    for event in answer(gateway, sent):
        _show(output, event)
        ok = event.run.state != _State.STATE_ERROR
    return sent.session_id, ok


def _show(output: Output, event: Event) -> None:
    if output.as_json:
        if not event.HasField("heartbeat"):
            output.record(as_dict(event))
    elif event.HasField("message"):
        _show_message(output, event.message)


def _show_message(output: Output, message: message_pb2.Message) -> None:
    match message.role:
        case _Role.ROLE_ASSISTANT:
            for call in message.tool_calls:
                output.note(f"→ {call.name} {call.arguments_json}")
            if message.text:
                output.console.print(Markdown(message.text))
            if message.text and message.citations:
                _show_citations(output, message)
        case _Role.ROLE_TOOL:
            found = f"{len(message.citations)} passages" if message.citations else "done"
            output.note(f"← {message.tool_name}: {found}")
        case _Role.ROLE_SYSTEM:
            output.error(message.text)
        case _:
            pass


def _show_citations(output: Output, message: message_pb2.Message) -> None:
    for citation in message.citations:
        place = " > ".join((citation.document_name, *citation.heading_path))
        lines = f"lines {citation.start_line}-{citation.end_line}"
        output.note(f"[{citation.label}] {place} ({lines})")


def _typed(output: Output) -> Iterator[str]:
    """What the person types, a line at a time, up to the end of the input."""
    prompt = "you> " if sys.stdin.isatty() else ""
    while True:
        try:
            text = output.notes.input(prompt, markup=False)
        except EOFError:
            return
        if text.strip():
            yield text
