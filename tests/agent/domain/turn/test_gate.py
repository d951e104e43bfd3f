import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest

from services.agent.domain.approval_models import (
    MAX_ARGUMENTS_BYTES,
    Approval,
    ApprovalId,
    ApprovalState,
    Question,
)
from services.agent.domain.chat import ToolContext, ToolEffect, ToolResult, ToolSpec
from services.agent.domain.messages import Citation, Draft, Role, ToolCall
from services.agent.domain.models import (
    ApprovalMode,
    ChunkId,
    DocumentId,
    KnowledgeBaseId,
    RunId,
    SessionId,
    ToolApproval,
    ToolCallId,
)
from services.agent.domain.turn.gate import Gate, offers_of_others, taints
from services.agent.domain.turn.steps import PlannedCall
from services.common.text import Json
from tests.agent.turns import PlainTool

NOW = datetime(2026, 6, 1, tzinfo=UTC)
READ = PlainTool("read")
KEEP = PlainTool("keep", effect=ToolEffect.STATE_CHANGING)
SEND = PlainTool("send", effect=ToolEffect.OUTBOUND)
TRUSTED = PlainTool("clock", trusted=True)
TOOLS = {tool.name: tool for tool in (READ, KEEP, SEND, TRUSTED)}
ALWAYS, NEVER = ApprovalMode


@dataclass(frozen=True)
class Spec:
    """A tool of which something else is told."""

    tool: PlainTool
    spec: ToolSpec

    async def run(self, arguments: Mapping[str, Json], context: ToolContext) -> ToolResult:
        return await self.tool.run(arguments, context)


def call(name: str, arguments: str = '{"what": "x"}') -> ToolCall:
    return ToolCall(ToolCallId("c"), name, arguments)


def gate(
    *, tainted: bool = False, modes: Sequence[ToolApproval] = (), approval: Approval | None = None
) -> Gate:
    approvals = {} if approval is None else {approval.question.tool_call_id: approval}
    return Gate(TOOLS, modes, tainted=tainted, approvals=approvals)


def approved(state: ApprovalState, arguments: str = '{"what":"x"}', comment: str = "") -> Approval:
    return Approval(
        id=ApprovalId("p"),
        session_id=SessionId("s"),
        run_id=RunId("r"),
        turn=1,
        step=1,
        place=0,
        question=Question(ToolCallId("c"), "send", arguments),
        state=state,
        create_time=NOW,
        expire_time=NOW,
        comment=comment,
    )


class TestWho:
    @pytest.mark.parametrize(
        ("name", "mode", "tainted", "waits"),
        [
            ("read", None, False, False),
            ("read", None, True, False),
            ("read", ALWAYS, False, True),
            ("keep", None, False, False),
            ("keep", None, True, True),
            ("send", None, False, False),
            ("send", None, True, True),
            ("send", NEVER, True, False),
            ("send", ALWAYS, False, True),
            ("gone", None, True, False),
        ],
    )
    def test_waits(self, name: str, mode: ApprovalMode | None, tainted: bool, waits: bool) -> None:
        modes = [] if mode is None else [ToolApproval(name, mode)]

        [judged] = gate(tainted=tainted, modes=modes).judged([PlannedCall(call(name))])

        assert waits == (judged.question is not None)
        assert judged.answer is None

    def test_without_anybody_to_ask_it_is_not_made(self) -> None:
        unattended = replace(gate(tainted=True), attended=False)

        sent, read = unattended.judged([PlannedCall(call("send")), PlannedCall(call("read"))])

        assert sent.answer is not None
        assert (sent.answer.error, sent.question) == ("approval_required", None)
        assert read == PlannedCall(call("read"))

    def test_a_call_that_is_answered_already_asks_nobody(self) -> None:
        answered = PlannedCall(call("send"), ToolResult("Error: no.", error="no"))

        assert (answered,) == gate(tainted=True).judged([answered])

    @pytest.mark.parametrize("arguments", ["{", "[]", '{"where": 1}', '{"what": {}}'])
    def test_arguments_that_the_tool_refuses_ask_nobody(self, arguments: str) -> None:
        planned = PlannedCall(call("send", arguments))

        assert (planned,) == gate(tainted=True).judged([planned])

    def test_nobody_is_asked_to_read_more_than_a_person_reads(self) -> None:
        long = json.dumps({"what": "x" * MAX_ARGUMENTS_BYTES})

        [judged] = gate(tainted=True).judged([PlannedCall(call("send", long))])

        assert judged.question is None
        assert judged.answer is not None
        assert judged.answer.error == "approval_too_long"


class TestQuestion:
    @pytest.mark.parametrize(
        "written",
        [
            '{"what":"x"}',
            '{ "what" : "x" }',
            '```json\n{"what": "x"}\n```',
            '{"what": "\\u0078"}',
        ],
    )
    def test_tells_what_the_tool_gets_however_it_is_written(self, written: str) -> None:
        [judged] = gate(tainted=True).judged([PlannedCall(call("send", written))])

        assert judged.question == Question(ToolCallId("c"), "send", '{"what":"x"}')


class TestDecided:
    def judged(self, approval: Approval, arguments: str = '{"what": "x"}') -> PlannedCall:
        [judged] = gate(tainted=True, approval=approval).judged(
            [PlannedCall(call("send", arguments))]
        )
        return judged

    def test_an_approved_call_is_made_as_approved(self) -> None:
        judged = self.judged(approved(ApprovalState.APPROVED))

        assert judged == PlannedCall(call("send", '{"what":"x"}'))

    def test_an_approved_call_that_reads_otherwise_now_is_not_made(self) -> None:
        judged = self.judged(approved(ApprovalState.APPROVED), '{"what": "y"}')

        assert judged.answer is not None
        assert judged.answer.error == "approval_mismatch"

    @pytest.mark.parametrize(
        ("comment", "text"),
        [("", "Error: denied by the user."), ("not now", "Error: denied by the user: not now")],
    )
    def test_a_denied_one_is_not(self, comment: str, text: str) -> None:
        judged = self.judged(approved(ApprovalState.DENIED, comment=comment))

        assert judged.answer == ToolResult(text, error="denied")

    @pytest.mark.parametrize("state", [ApprovalState.EXPIRED, ApprovalState.CANCELLED])
    def test_one_that_nobody_answered_counts_as_denied(self, state: ApprovalState) -> None:
        judged = self.judged(approved(state))

        assert judged.answer is not None
        assert judged.answer.error == "approval_expired"

    def test_one_that_is_open_still_waits(self) -> None:
        approval = approved(ApprovalState.PENDING)

        assert self.judged(approval).question == approval.question

    def test_a_decision_holds_whatever_the_agent_says_by_now(self) -> None:
        modes = [ToolApproval("send", NEVER)]
        denied = approved(ApprovalState.DENIED)

        [judged] = gate(modes=modes, approval=denied).judged([PlannedCall(call("send"))])

        assert judged.answer is not None


class TestReleased:
    """What becomes of a call whose arguments a hook has changed since it was judged."""

    def released(
        self,
        arguments: str,
        *,
        name: str = "send",
        tainted: bool = True,
        approval: Approval | None = None,
    ) -> PlannedCall:
        return gate(tainted=tainted, approval=approval).released(call(name, arguments))

    @pytest.mark.parametrize("arguments", ['{"what":"x"}', '{ "what": "\\u0078" }'])
    def test_it_is_made_as_it_was_approved(self, arguments: str) -> None:
        given = self.released(arguments, approval=approved(ApprovalState.APPROVED))

        assert given == PlannedCall(call("send", '{"what":"x"}'))

    def test_with_other_arguments_than_the_approved_ones_it_is_not_made(self) -> None:
        given = self.released('{"what": "y"}', approval=approved(ApprovalState.APPROVED))

        assert given.answer is not None
        assert given.answer.error == "approval_mismatch"

    def test_nor_is_one_that_nobody_was_asked_about_and_somebody_had_to_be(self) -> None:
        given = self.released('{"what": "y"}')

        assert given.answer is not None
        assert given.answer.error == "approval_mismatch"

    def test_one_that_asks_nobody_is_made_as_it_is(self) -> None:
        assert self.released('{"what": "y"}', tainted=False) == PlannedCall(
            call("send", '{"what": "y"}')
        )
        assert self.released('{"what": "y"}', name="read").answer is None

    def test_one_that_its_tool_refuses_is_left_to_the_tool(self) -> None:
        approval = approved(ApprovalState.APPROVED)

        assert self.released("{", approval=approval) == PlannedCall(call("send", "{"))


class TestAgents:
    """Names of other agents come from what people call them, so they can change at any time."""

    def waits(self, *modes: ToolApproval) -> bool:
        spec = replace(READ.spec, name="ask_writer", asks_agent=True)
        tool = PlainTool("ask_writer")
        asking = Gate({tool.name: Spec(tool, spec)}, modes, tainted=False, approvals={})
        [judged] = asking.judged([PlannedCall(call("ask_writer"))])
        return judged.question is not None

    def test_one_that_has_to_be_asked_about_and_is_renamed_is_asked_about_still(self) -> None:
        assert not self.waits()
        assert self.waits(ToolApproval("ask_writer", ALWAYS))
        assert self.waits(ToolApproval("ask_author", ALWAYS))

    def test_what_is_said_of_this_one_holds(self) -> None:
        said = (ToolApproval("ask_author", ALWAYS), ToolApproval("ask_writer", NEVER))

        assert not self.waits(*said)

    def test_what_is_said_of_other_tools_is_not_about_agents(self) -> None:
        assert not self.waits(ToolApproval("send", ALWAYS), ToolApproval("ask_author", NEVER))


class TestTaints:
    cited = Citation("1", KnowledgeBaseId("b"), DocumentId("d"), ChunkId("k"), "doc", (), 1, 1, 0.5)

    def result(self, tool: str) -> Draft:
        return Draft(Role.TOOL, "found", tool_call_id=ToolCallId("c"), tool_name=tool)

    def test_what_user_and_model_say_does_not(self) -> None:
        assert not taints([Draft(Role.USER, "Hi"), Draft(Role.ASSISTANT, "Hello")], TOOLS)

    def test_a_result_does_unless_its_tool_is_trusted(self) -> None:
        assert taints([self.result("read")], TOOLS)
        assert not taints([self.result("clock")], TOOLS)

    def test_so_does_one_of_a_tool_that_is_gone(self) -> None:
        assert taints([self.result("gone")], TOOLS)

    def test_so_does_whatever_was_said_after_such_was_read(self) -> None:
        assert taints([Draft(Role.ASSISTANT, "Send it.", metadata={"tainted": True})], TOOLS)

    def test_so_do_tools_that_others_describe(self) -> None:
        described = Spec(READ, replace(READ.spec, foreign=True))

        assert offers_of_others({"read": described})
        assert not offers_of_others(TOOLS)

    def test_and_an_answer_that_cites(self) -> None:
        said = Draft(Role.ASSISTANT, "See [1].")

        assert taints([replace(said, citations=(self.cited,))], TOOLS)
