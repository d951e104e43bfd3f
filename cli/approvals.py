"""Tool calls that wait for a person: shown in full, and answered."""

import json
import sys
import unicodedata
import uuid
from collections.abc import Sequence
from typing import Annotated

import grpc
import typer
from chatmind.agent.v1 import agent_pb2, approval_pb2, run_service_pb2

from cli.client import CALL_SECONDS, Gateway, failed_call, listed
from cli.errors import CommandError
from cli.output import Output
from cli.plain import one_line
from services.common.status import failure_of

ApprovalsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--approval",
        help="TOOL=always or TOOL=never: whether its calls wait for you; repeatable. All that are "
        "given hold in place of those so far.",
    ),
]

NoApprovalsOption = Annotated[
    bool, typer.Option("--no-approvals", help="Let what its tools do decide, for all of them.")
]

Approval = approval_pb2.Approval

_HIDDEN = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"}


def approvals_of(
    gateway: Gateway, run_id: str, state: approval_pb2.Approval.State.ValueType
) -> list[approval_pb2.Approval]:
    """Those of a run that stand so, in the order of the calls; unspecified stands for all."""
    request = run_service_pb2.ListApprovalsRequest(run_id=run_id, state=state)
    return list(listed(gateway.runs.ListApprovals, request, lambda page: page.approvals))


def resolve(
    gateway: Gateway, approval: approval_pb2.Approval, *, approve: bool, comment: str = ""
) -> run_service_pb2.ResolveApprovalResponse:
    """Answer one, as it was shown."""
    words = run_service_pb2.ResolveApprovalRequest
    request = words(
        approval_id=approval.id,
        decision=words.DECISION_APPROVE if approve else words.DECISION_DENY,
        arguments_digest=approval.arguments_digest,
        comment=comment,
        request_id=str(uuid.uuid4()),
    )
    return gateway.runs.ResolveApproval(request, timeout=CALL_SECONDS)


def show(output: Output, approval: approval_pb2.Approval) -> None:
    """Tell which tool is to be called, with all that it would get."""
    output.note(f"{one_line(approval.tool_name)} is to be called with:")
    output.note(legible(approval.arguments_json))


def legible(arguments_json: str) -> str:
    """Arguments on several lines, with everything that a terminal does not show spelled out."""
    text = json.dumps(json.loads(arguments_json), ensure_ascii=False, indent=2)
    return "".join(
        json.dumps(each)[1:-1] if each != "\n" and unicodedata.category(each) in _HIDDEN else each
        for each in text
    )


def decide(gateway: Gateway, output: Output, run_id: str) -> None:
    """Have the person decide about the calls for which a run waits; without one, tell how to."""
    pending = approvals_of(gateway, run_id, Approval.STATE_PENDING)
    if output.as_json or not sys.stdin.isatty():
        _tell(output, run_id, pending)
        return
    for approval in pending:
        show(output, approval)
        approve = output.ask("Let it be called? [y/N]: ").strip().lower() in {"y", "yes"}
        try:
            resolve(gateway, approval, approve=approve)
        except grpc.RpcError as error:
            failure = failure_of(failed_call(error))
            if failure.code is not grpc.StatusCode.FAILED_PRECONDITION:
                raise
            output.note(failure.message)


def _tell(output: Output, run_id: str, pending: Sequence[approval_pb2.Approval]) -> None:
    for approval in pending:
        show(output, approval)
    if pending:
        output.note(
            f"the run waits for your word until {pending[0].expire_time.ToJsonString()}: "
            f"chatmind run approve {run_id}, or chatmind run deny {run_id}"
        )


def tool_approval(text: str) -> agent_pb2.ToolApproval:
    """What an agent says of one tool, from TOOL=always or TOOL=never.

    Raises:
        CommandError: the text is neither.
    """
    tool, _, mode = text.partition("=")
    modes = {
        "always": agent_pb2.ToolApproval.MODE_ALWAYS,
        "never": agent_pb2.ToolApproval.MODE_NEVER,
    }
    if not tool or mode not in modes:
        raise CommandError(f"--approval {text!r} is neither TOOL=always nor TOOL=never")
    return agent_pb2.ToolApproval(tool=tool, mode=modes[mode])
