"""`chatmind chat`: a conversation in the terminal."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import Annotated

import typer
from chatmind.agent.v1 import session_pb2
from chatmind.gateway.v1 import gateway_service_pb2, message_pb2

from cli.app import remote
from cli.approvals import decide
from cli.client import Gateway
from cli.conversation import Event, Sent, answer, send
from cli.errors import CommandError
from cli.history import last_turns
from cli.lookup import first_agent, one_agent, one_session
from cli.output import Output, as_dict
from cli.plain import one_line

_Role = message_pb2.Message.Role
_State = message_pb2.RunUpdate.State

_PROMPT = "you> "
_ASKS = "ask_"


class WhenBusy(StrEnum):
    """What becomes of a message that is sent while a run of its session goes on."""

    ENQUEUE = "enqueue"
    REJECT = "reject"
    INTERRUPT = "interrupt"
    ROLLBACK = "rollback"


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
    history: Annotated[
        int, typer.Option("--history", min=0, help="How many turns of it to show at first.")
    ] = 1,
    when_busy: Annotated[
        WhenBusy, typer.Option("--when-busy", help="What to do while a run of it goes on.")
    ] = WhenBusy.ENQUEUE,
) -> None:
    """Talk to an agent."""
    if agent and session:
        raise CommandError("--agent and --session exclude each other: a session keeps its agent")
    if message is not None and not message.strip():
        raise CommandError("the message is empty; it needs at least one character")
    agent_id = "" if session else _agent_id(gateway, agent)
    state = _State.STATE_FINISHED
    if session:
        continued = one_session(gateway, session)
        if message is None:
            state = _catch_up(gateway, output, continued, turns=history)
    sent = None
    try:
        for text in [message] if message is not None else _typed(output):
            busy = gateway_service_pb2.WhenBusy.Value(f"WHEN_BUSY_{when_busy.name}")
            sent = send(gateway, text, session_id=session, agent_id=agent_id, when_busy=busy)
            session = sent.session_id
            with _going_on(output, sent):
                state = _follow(gateway, output, sent).run.state
    finally:
        if sent is not None and not output.as_json:
            output.note(f"continue with: chatmind chat --session {session}")
    if state != _State.STATE_FINISHED:
        raise typer.Exit(1)


def _agent_id(gateway: Gateway, name: str) -> str:
    return (one_agent(gateway, name) if name else first_agent(gateway)).id


def _catch_up(
    gateway: Gateway, output: Output, session: session_pb2.Session, *, turns: int
) -> message_pb2.RunUpdate.State.ValueType:
    """Print the last turns of a session, and what is still to come of the runs that go on.

    Returns:
        The final state of the last run that was waited for; FINISHED if there was none.
    """
    shown = last_turns(gateway, session, turns)
    after, state = shown.after, _State.STATE_FINISHED
    if shown.run_id and not session.active_run_id:
        _follow(gateway, output, Sent(session.id, shown.run_id, after), all_runs=True)
    while session.active_run_id:
        active = Sent(session.id, session.active_run_id, after)
        with _going_on(output, active):
            end = _follow(gateway, output, active, all_runs=True)
        after, state = end.through_sequence, end.run.state
        session = one_session(gateway, session.id)
    return state


@contextmanager
def _going_on(output: Output, sent: Sent) -> Iterator[None]:
    """Tell whoever leaves with Ctrl-C that the run goes on."""
    try:
        yield
    except KeyboardInterrupt:
        output.note(
            "the run goes on, and its answer is shown when you continue; "
            f"stop it with: chatmind run cancel {sent.run_id}"
        )
        raise


def _follow(gateway: Gateway, output: Output, sent: Sent, *, all_runs: bool = False) -> Event:
    """Print the events after a message; returns the last one, the end of its run.

    For people, messages of other runs are left out unless they are asked for: they would be taken
    for the answer.
    """
    event = Event()
    for event in answer(gateway, sent):
        if all_runs or output.as_json or event.message.run_id == sent.run_id:
            _show(output, event)
        if event.run.state == _State.STATE_AWAITING_APPROVAL and event.run.run_id == sent.run_id:
            decide(gateway, output, sent.run_id)
    if event.run.state == _State.STATE_CANCELLED and not output.as_json:
        output.note("the run was cancelled")
    return event


def _show(output: Output, event: Event) -> None:
    if output.as_json:
        if not event.HasField("heartbeat"):
            output.record(as_dict(event))
    elif event.HasField("message") and not event.message.discarded:
        _show_message(output, event.message)


def _show_message(output: Output, message: message_pb2.Message) -> None:
    match message.role:
        case _Role.ROLE_USER:
            output.note(f"{_PROMPT}{message.text}")
        case _Role.ROLE_ASSISTANT:
            for call in message.tool_calls:
                output.note(f"→ {one_line(_asked_for(call))}")
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


def _asked_for(call: message_pb2.ToolCall) -> str:
    """A call as people read it: of another agent, whom it asks and what."""
    name, agent = call.name, call.name.removeprefix(_ASKS)
    if agent != name:
        with suppress(ValueError):
            match json.loads(call.arguments_json):
                case {"task": str(task)}:
                    return f"asks {agent.replace('_', ' ')}: {task}"
    return f"{name} {call.arguments_json}"


def _show_citations(output: Output, message: message_pb2.Message) -> None:
    for citation in message.citations:
        place = " > ".join((citation.document_name, *citation.heading_path))
        lines = f"lines {citation.start_line}-{citation.end_line}"
        output.note(one_line(f"[{citation.label}] {place} ({lines})"))


def _typed(output: Output) -> Iterator[str]:
    """The lines that the person types, up to the end of the input; blank ones are left out."""
    prompt = _PROMPT if sys.stdin.isatty() else ""
    while True:
        try:
            text = output.ask(prompt)
        except EOFError:
            return
        if text.strip():
            yield text
