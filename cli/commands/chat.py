"""`chatmind chat`: a conversation in the terminal."""

import sys
from collections.abc import Iterator
from typing import Annotated

import typer
from chatmind.gateway.v1 import message_pb2

from cli.app import remote
from cli.client import Gateway
from cli.conversation import Event, Sent, answer, send
from cli.lookup import first_agent, one_agent
from cli.output import Output, as_dict
from cli.plain import one_line

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
    agent: Annotated[str, typer.Option("--agent", help="Whom to talk to, by name or id.")] = "",
    session: Annotated[str, typer.Option("--session", help="Continue a session, by id.")] = "",
) -> None:
    """Talk to an agent."""
    agent_id = "" if session else _agent_id(gateway, agent)
    state = _State.STATE_FINISHED
    try:
        for text in [message] if message is not None else _typed(output):
            sent = send(gateway, text, session_id=session, agent_id=agent_id)
            session = sent.session_id
            state = _follow(gateway, output, sent)
    finally:
        if session and not output.as_json:
            output.note(f"continue with: chatmind chat --session {session}")
    if state != _State.STATE_FINISHED:
        raise typer.Exit(1)


def _agent_id(gateway: Gateway, name: str) -> str:
    return (one_agent(gateway, name) if name else first_agent(gateway)).id


def _follow(gateway: Gateway, output: Output, sent: Sent) -> message_pb2.RunUpdate.State.ValueType:
    """Print the events after a sent message; returns the final state of its run."""
    state = _State.STATE_UNSPECIFIED
    for event in answer(gateway, sent):
        _show(output, event)
        state = event.run.state
    if state == _State.STATE_CANCELLED and not output.as_json:
        output.note("the run was cancelled")
    return state


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
                output.note(f"→ {one_line(f'{call.name} {call.arguments_json}')}")
            if message.text:
                output.markdown(message.text)
            if message.text and message.citations:
                _show_citations(output, message)
        case _Role.ROLE_TOOL:
            found = f"{len(message.citations)} passages" if message.citations else "done"
            output.note(f"← {one_line(message.tool_name)}: {found}")
        case _Role.ROLE_SYSTEM:
            output.error(message.text)
        case _:
            pass


def _show_citations(output: Output, message: message_pb2.Message) -> None:
    for citation in message.citations:
        place = " > ".join((citation.document_name, *citation.heading_path))
        lines = f"lines {citation.start_line}-{citation.end_line}"
        output.note(one_line(f"[{citation.label}] {place} ({lines})"))


def _typed(output: Output) -> Iterator[str]:
    """The lines that the person types, up to the end of the input; blank ones are left out."""
    prompt = "you> " if sys.stdin.isatty() else ""
    while True:
        try:
            text = output.ask(prompt)
        except EOFError:
            return
        if text.strip():
            yield text
