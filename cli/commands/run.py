"""`chatmind run`: looks at the runs that answer messages, stops them and lets them go on."""

from typing import Annotated

import typer
from chatmind.agent.v1 import approval_pb2, replay_pb2, run_pb2
from chatmind.agent.v1 import run_service_pb2 as _pb
from google.protobuf.json_format import MessageToJson

from cli.app import confirm, remote
from cli.approvals import Approval, approvals_of, resolve, show
from cli.client import CALL_SECONDS, Gateway, listed
from cli.errors import CommandError
from cli.lookup import one_session
from cli.output import Output, word

app = typer.Typer(help="Runs: the work on one message each.", no_args_is_help=True)

RunArgument = Annotated[str, typer.Argument(metavar="RUN_ID", help="The run, by id.")]

ApprovalArgument = Annotated[
    str,
    typer.Argument(metavar="APPROVAL_ID", help="One of its approvals, by id; else all."),
]

_Call = run_pb2.ToolCallRecord
_Run = run_pb2.Run


@app.command("list")
@remote
def list_runs(
    gateway: Gateway,
    output: Output,
    *,
    session: Annotated[str, typer.Option("--session", help="The session, by id.")],
) -> None:
    """List the runs of a session, newest first."""
    request = _pb.ListRunsRequest(session_id=one_session(gateway, session).id)
    runs = list(listed(gateway.runs.ListRuns, request, lambda page: page.runs))
    output.table(
        runs,
        columns=("STATE", "REASON", "STEPS", "COST", "CREATED", "ID"),
        rows=(
            (_state(r), _reason(r), str(r.step_count), _cost(r), _created(r), r.id) for r in runs
        ),
    )


@app.command("get")
@remote
def get_run(gateway: Gateway, output: Output, run: RunArgument) -> None:
    """Show a run in full."""
    request = _pb.GetRunRequest(run_id=run)
    found = gateway.runs.GetRun(request, timeout=CALL_SECONDS).run
    text = MessageToJson(found, preserving_proto_field_name=True, ensure_ascii=False)
    output.message(found, text=text)


@app.command("cancel")
@remote
def cancel_run(gateway: Gateway, output: Output, run: RunArgument) -> None:
    """Stop a run; what it has done is kept."""
    request = _pb.CancelRunRequest(run_id=run)
    stopped = gateway.runs.CancelRun(request, timeout=CALL_SECONDS).run
    output.message(stopped, text=f"{stopped.id} is {_state(stopped)}")


@app.command("retry")
@remote
def retry_run(gateway: Gateway, output: Output, run: RunArgument) -> None:
    """Let a run that ended in an error go on behind what it has done."""
    request = _pb.RetryRunRequest(run_id=run)
    retried = gateway.runs.RetryRun(request, timeout=CALL_SECONDS).run
    output.message(retried, text=f"{retried.id} is {_state(retried)}")
    output.note(f"see its answer with: chatmind chat --session {retried.session_id}")


@app.command("calls")
@remote
def list_calls(gateway: Gateway, output: Output, run: RunArgument) -> None:
    """List what became of a run's tool calls."""
    request = _pb.ListToolCallsRequest(run_id=run)
    calls = list(listed(gateway.runs.ListToolCalls, request, lambda page: page.tool_calls))
    output.table(
        calls,
        columns=("STEP", "TOOL", "STATE", "ATTEMPTS", "ERROR", "ID"),
        rows=(
            (
                str(c.step),
                c.tool_name,
                word(_Call.State.Name, c.state, prefix="STATE_"),
                str(c.attempts),
                c.error,
                c.tool_call_id,
            )
            for c in calls
        ),
    )


@app.command("replay")
@remote
def replay_run(
    gateway: Gateway,
    output: Output,
    run: RunArgument,
    *,
    current: Annotated[
        bool, typer.Option("--current-agent", help="Take the agent as it is now, not as it was.")
    ] = False,
) -> None:
    """Drive a run anew with what was said in it, and tell the first difference; 1 if there is one.

    Neither the model nor a tool is called, and nothing is stored.
    """
    agent = _pb.REPLAY_AGENT_CURRENT if current else _pb.REPLAY_AGENT_RECORDED
    request = _pb.ReplayRunRequest(run_id=run, agent=agent)
    replay = gateway.runs.ReplayRun(request, timeout=CALL_SECONDS).replay
    output.message(replay, text=_told(replay))
    if not replay.identical:
        raise typer.Exit(1)


def _told(replay: replay_pb2.Replay) -> str:
    count = replay.compared_messages
    alike = f"{count} message{'' if count == 1 else 's'} came out alike"
    if replay.identical:
        end = "so did the end" if replay.end_driven else "the end came from outside"
        return f"{replay.run_id} is identical: {alike}, {end}"
    found = replay.difference
    return "\n".join(
        (
            f"{replay.run_id} differs in {found.path}; {alike} before",
            f"- {found.recorded or '(nothing)'}",
            f"+ {found.replayed or '(nothing)'}",
        )
    )


@app.command("approvals")
@remote
def list_approvals(gateway: Gateway, output: Output, run: RunArgument) -> None:
    """List the tool calls of a run that wait for a person, or did so: who answered, and when."""
    found = approvals_of(gateway, run, Approval.STATE_UNSPECIFIED)
    output.table(
        found,
        columns=("TOOL", "STATE", "BY", "WHEN", "UNTIL", "ARGUMENTS", "ID"),
        rows=(
            (
                a.tool_name,
                word(Approval.State.Name, a.state, prefix="STATE_"),
                a.resolver_user_id,
                a.resolve_time.ToJsonString() if a.HasField("resolve_time") else "",
                a.expire_time.ToJsonString(),
                a.arguments_json,
                a.id,
            )
            for a in found
        ),
    )


@app.command("approve")
@remote
def approve(
    gateway: Gateway,
    output: Output,
    run: RunArgument,
    approval: ApprovalArgument = "",
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Let a tool call be made that waits for a person; it is shown first."""
    for each in _pending(gateway, run, approval):
        show(output, each)
        if not yes:
            confirm(output, "Let it be called?")
        _answer(gateway, output, each, approved=True)


@app.command("deny")
@remote
def deny(
    gateway: Gateway,
    output: Output,
    run: RunArgument,
    approval: ApprovalArgument = "",
    *,
    comment: Annotated[str, typer.Option("--comment", help="What the model is told.")] = "",
) -> None:
    """Refuse a tool call that waits for a person; the model is told so."""
    for each in _pending(gateway, run, approval):
        _answer(gateway, output, each, approved=False, comment=comment)


def _pending(gateway: Gateway, run: str, chosen: str) -> list[approval_pb2.Approval]:
    found = approvals_of(gateway, run, Approval.STATE_PENDING)
    pending = [each for each in found if chosen in {"", each.id}]
    if not pending:
        raise CommandError("no such call of this run waits for a person")
    return pending


def _answer(
    gateway: Gateway,
    output: Output,
    approval: approval_pb2.Approval,
    *,
    approved: bool,
    comment: str = "",
) -> None:
    answered = resolve(gateway, approval, approve=approved, comment=comment).approval
    state = word(Approval.State.Name, answered.state, prefix="STATE_")
    output.message(answered, text=f"{answered.id} is {state}")


def _state(run: run_pb2.Run) -> str:
    state = word(_Run.State.Name, run.state, prefix="STATE_")
    if run.discarded:
        return f"{state}, discarded"
    return f"{state}, to be cancelled" if run.cancel_requested else state


def _cost(run: run_pb2.Run) -> str:
    """To a ten-thousandth, rounded up, so that only what costs nothing is 0."""
    if not run.usage.HasField("cost"):
        return ""
    whole, parts = divmod(-(-run.usage.cost.nanos // 100_000), 10_000)
    return f"{whole}.{parts:04d} {run.usage.cost.currency}"


def _reason(run: run_pb2.Run) -> str:
    if not run.stop_reason:
        return ""
    return word(_Run.StopReason.Name, run.stop_reason, prefix="STOP_REASON_")


def _created(run: run_pb2.Run) -> str:
    return run.create_time.ToJsonString()
