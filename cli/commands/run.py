"""`chatmind run`: looks at the runs that answer messages, stops them and lets them go on."""

from typing import Annotated

import typer
from chatmind.agent.v1 import run_pb2, run_service_pb2
from google.protobuf.json_format import MessageToJson

from cli.app import remote
from cli.client import CALL_SECONDS, Gateway, listed
from cli.lookup import one_session
from cli.output import Output, word

app = typer.Typer(help="Runs: the work on one message each.", no_args_is_help=True)

RunArgument = Annotated[str, typer.Argument(metavar="RUN_ID", help="The run, by id.")]

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
    request = run_service_pb2.ListRunsRequest(session_id=one_session(gateway, session).id)
    runs = list(listed(gateway.runs.ListRuns, request, lambda page: page.runs))
    output.table(
        runs,
        columns=("STATE", "REASON", "STEPS", "CREATED", "ID"),
        rows=((_state(r), _reason(r), str(r.step_count), _created(r), r.id) for r in runs),
    )


@app.command("get")
@remote
def get_run(gateway: Gateway, output: Output, run: RunArgument) -> None:
    """Show a run in full."""
    request = run_service_pb2.GetRunRequest(run_id=run)
    found = gateway.runs.GetRun(request, timeout=CALL_SECONDS).run
    text = MessageToJson(found, preserving_proto_field_name=True, ensure_ascii=False)
    output.message(found, text=text)


@app.command("cancel")
@remote
def cancel_run(gateway: Gateway, output: Output, run: RunArgument) -> None:
    """Stop a run; what it has done is kept."""
    request = run_service_pb2.CancelRunRequest(run_id=run)
    stopped = gateway.runs.CancelRun(request, timeout=CALL_SECONDS).run
    output.message(stopped, text=f"{stopped.id} is {_state(stopped)}")


@app.command("retry")
@remote
def retry_run(gateway: Gateway, output: Output, run: RunArgument) -> None:
    """Let a run that ended in an error go on behind what it has done."""
    request = run_service_pb2.RetryRunRequest(run_id=run)
    retried = gateway.runs.RetryRun(request, timeout=CALL_SECONDS).run
    output.message(retried, text=f"{retried.id} is {_state(retried)}")
    output.note(f"see its answer with: chatmind chat --session {retried.session_id}")


@app.command("calls")
@remote
def list_calls(gateway: Gateway, output: Output, run: RunArgument) -> None:
    """List what became of a run's tool calls."""
    request = run_service_pb2.ListToolCallsRequest(run_id=run)
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


def _state(run: run_pb2.Run) -> str:
    state = word(_Run.State.Name, run.state, prefix="STATE_")
    if run.discarded:
        return f"{state}, discarded"
    return f"{state}, to be cancelled" if run.cancel_requested else state


def _reason(run: run_pb2.Run) -> str:
    if not run.stop_reason:
        return ""
    return word(_Run.StopReason.Name, run.stop_reason, prefix="STOP_REASON_")


def _created(run: run_pb2.Run) -> str:
    return run.create_time.ToJsonString()
