"""Decides which calls of a model wait for a person. Pure.

What an agent says of a tool holds. Otherwise the tool's effect decides: what only reads does not
wait, all else does once the run is tainted, that is, once its model is shown what others wrote and
may have written to mislead it, or what a model said that was shown such. Neither an unknown tool
nor arguments that the tool would refuse are a question to a person: such a call is answered without
being executed. A call is judged once more when it is about to be executed, as hooks have left it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from services.agent.domain.approval_models import (
    MAX_ARGUMENTS_BYTES,
    Approval,
    ApprovalState,
    Question,
)
from services.agent.domain.chat import ToolEffect, ToolResult, ToolSpec
from services.agent.domain.messages import Draft, Role, ToolCall
from services.agent.domain.models import ApprovalMode, ToolApproval, ToolCallId
from services.agent.domain.ports import Tool
from services.agent.domain.tools.arguments import ArgumentsError, read_arguments
from services.agent.domain.turn.citations import ASK_PREFIX
from services.agent.domain.turn.replies import TAINTED
from services.agent.domain.turn.steps import PlannedCall


@dataclass(frozen=True, slots=True)
class Gate:
    """What decides over the calls of one reply.

    Attributes:
        tools: what the run may call, by name.
        modes: what the agent says of tools.
        tainted: whether the model was shown what others wrote when it asked for the calls.
        approvals: what became of questions about these calls.
        attended: whether there is a person who can be asked; where there is none, a call that
            would wait is not made.
    """

    tools: Mapping[str, Tool]
    modes: Sequence[ToolApproval]
    tainted: bool
    approvals: Mapping[ToolCallId, Approval]
    attended: bool = True

    def judged(self, calls: Iterable[PlannedCall]) -> tuple[PlannedCall, ...]:
        """The same calls with the questions, and with what answers those that were denied."""
        return tuple(each if each.answer else self._judged(each.call) for each in calls)

    def released(self, call: ToolCall) -> PlannedCall:
        """A call that was judged before, as it is to be executed now, or what answers it instead.

        Whatever has become of its arguments since, it is made as a person approved it, or as one
        about which nobody has to be asked, or not at all.
        """
        judged = self._judged(call)
        return judged if judged.question is None else PlannedCall(call, _MISMATCH)

    def _judged(self, call: ToolCall) -> PlannedCall:
        approval = self.approvals.get(call.id)
        tool = self.tools.get(call.name)
        if tool is None or (approval is None and not self._waits(tool.spec)):
            return PlannedCall(call)
        try:
            question = Question(call.id, call.name, _canonical(call.arguments_json, tool.spec))
        except ArgumentsError:
            return PlannedCall(call)
        if not self.attended:
            return PlannedCall(call, _NOBODY)
        if len(question.arguments_json.encode()) > MAX_ARGUMENTS_BYTES:
            return PlannedCall(call, _TOO_LONG)
        if approval is None:
            return PlannedCall(call, question=question)
        return _decided(call, question, approval)

    def _waits(self, spec: ToolSpec) -> bool:
        for each in self.modes:
            if each.tool == spec.name:
                return each.mode is ApprovalMode.ALWAYS
        if spec.asks_agent and self._agent_is_missed():
            return True
        return self.tainted and spec.effect is not ToolEffect.READ_ONLY

    def _agent_is_missed(self) -> bool:
        """Whether the agent wants to be asked about another one that is not there by that name.

        It may go by any other name now, as such names come from what people call an agent.
        """
        return any(
            each.mode is ApprovalMode.ALWAYS
            and each.tool.startswith(ASK_PREFIX)
            and each.tool not in self.tools
            for each in self.modes
        )


def taints(shown: Iterable[Draft], tools: Mapping[str, Tool]) -> bool:
    """Whether a model that is shown these messages reads what others wrote.

    A result of a tool that the run no longer has counts as such, and so does an answer that cites,
    and whatever a model said that read such itself: it may have said it again.
    """
    return any(
        message.citations or TAINTED in message.metadata or _of_others(message, tools)
        for message in shown
    )


def offers_of_others(tools: Mapping[str, Tool]) -> bool:
    """Whether a model that is offered these tools reads what others wrote of them."""
    return any(tool.spec.foreign for tool in tools.values())


def _of_others(message: Draft, tools: Mapping[str, Tool]) -> bool:
    if message.role is not Role.TOOL:
        return False
    tool = tools.get(message.tool_name or "")
    return tool is None or not tool.spec.trusted


def _decided(call: ToolCall, question: Question, approval: Approval) -> PlannedCall:
    match approval.state:
        case ApprovalState.PENDING:
            return PlannedCall(call, question=question)
        case ApprovalState.APPROVED if question == approval.question:
            return PlannedCall(replace(call, arguments_json=question.arguments_json))
        case ApprovalState.APPROVED:
            return PlannedCall(call, _MISMATCH)
        case ApprovalState.DENIED:
            said = f": {approval.comment}" if approval.comment else "."
            return PlannedCall(call, ToolResult(f"Error: denied by the user{said}", error="denied"))
        case _:
            return PlannedCall(call, _LAPSED)


def _canonical(arguments_json: str, spec: ToolSpec) -> str:
    values = read_arguments(arguments_json, spec).values
    return json.dumps(values, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


_LAPSED = ToolResult(
    "Error: not executed, because nobody approved the call in time, which counts as denied.",
    error="approval_expired",
)
_NOBODY = ToolResult(
    "Error: not executed, because a person has to approve the call, and an agent that was asked by "
    "another one cannot ask people.",
    error="approval_required",
)
_MISMATCH = ToolResult(
    "Error: not executed, because a person has to approve the call, and it has other arguments "
    "than those that were approved.",
    error="approval_mismatch",
)
_TOO_LONG = ToolResult(
    f"Error: not executed, because a person has to approve the call, and its arguments are longer "
    f"than {MAX_ARGUMENTS_BYTES // 1024} KiB.",
    error="approval_too_long",
)
