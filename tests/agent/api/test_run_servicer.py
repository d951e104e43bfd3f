"""RunService over real gRPC and PostgreSQL."""

import asyncio
import hashlib
import json
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from chatmind.agent.v1 import (
    agent_pb2,
    agent_service_pb2,
    approval_pb2,
    replay_pb2,
    run_pb2,
    session_pb2,
)
from chatmind.agent.v1 import run_service_pb2 as pb
from google.protobuf.field_mask_pb2 import FieldMask
from grpc import StatusCode, aio

from services.agent.domain.chat import ToolEffect, ToolResult
from services.common.ids import new_id
from services.common.status import failure_of
from tests.agent.running import ADMIN, ALICE, BOB, STRANGER, Keys, RunningAgent, running
from tests.agent.scripted_model import Reply, calls, says
from tests.agent.turns import PlainTool
from tests.contracts.agent_stores import agent_pool, postgres_stores

MIB = 1024 * 1024
IDLE, FINISHED, CANCELLED = (
    run_pb2.Run.STATE_IDLE,
    run_pb2.Run.STATE_FINISHED,
    run_pb2.Run.STATE_CANCELLED,
)

AWAITING = run_pb2.Run.STATE_AWAITING_APPROVAL
PENDING, APPROVED, EXPIRED = (
    approval_pb2.Approval.STATE_PENDING,
    approval_pb2.Approval.STATE_APPROVED,
    approval_pb2.Approval.STATE_EXPIRED,
)
ALWAYS = agent_pb2.ToolApproval.MODE_ALWAYS
APPROVE, DENY = (
    pb.ResolveApprovalRequest.DECISION_APPROVE,
    pb.ResolveApprovalRequest.DECISION_DENY,
)


def approves(approval: approval_pb2.Approval) -> pb.ResolveApprovalRequest:
    """The request that approves it."""
    return pb.ResolveApprovalRequest(
        approval_id=approval.id,
        decision=APPROVE,
        arguments_digest=approval.arguments_digest,
    )


async def events(call: Any, count: int) -> list[pb.WatchSessionResponse]:
    """The next events of a watch."""
    async with asyncio.timeout(10):
        return [await call.read() for _ in range(count)]


async def sequences(call: Any, count: int) -> list[int]:
    """The sequences of the next messages of a watch, whatever else is told between them."""
    heard: list[int] = []
    async with asyncio.timeout(20):
        while len(heard) < count:
            event = await call.read()
            if event.HasField("message"):
                heard.append(event.message.sequence)
                assert event.through_sequence == event.message.sequence
    return heard


class TestStartRun:
    async def test_message_and_run_are_stored(self, api: RunningAgent) -> None:
        alice = api.alice
        session = await alice.create_session()

        request = pb.StartRunRequest(session_id=session.id, text="What is it?\0")
        answer = await alice.call("StartRun", request)

        run, message = answer.run, answer.message
        assert (IDLE, message.id, session.agent_id) == (run.state, run.message_id, run.agent_id)
        assert (1, "What is it?\ufffd", session_pb2.Message.ROLE_USER, run.id) == (
            message.sequence,
            message.text,
            message.role,
            message.run_id,
        )
        assert run == await alice.run(run.id)
        get = agent_service_pb2.GetSessionRequest(session_id=session.id)
        after = (await alice.call("GetSession", get)).session
        assert (run.id, 1, "What is it?\ufffd") == (
            after.active_run_id,
            after.last_sequence,
            after.title,
        )

    async def test_a_mebibyte_is_taken_and_no_byte_more(self, api: RunningAgent) -> None:
        alice = api.alice
        session = await alice.create_session()
        await alice.say(session.id, "x" * MIB)

        for text in ("x" * (MIB + 1), "\0" * MIB, ""):
            request = pb.StartRunRequest(session_id=session.id, text=text)
            failure = await alice.failure("StartRun", request)

            assert failure.code == StatusCode.INVALID_ARGUMENT
            assert [each.field for each in failure.violations] == ["text"]
        assert len(await alice.messages(session.id)) == 1

    async def test_a_repeat_gives_the_first_run(self, api: RunningAgent) -> None:
        alice, request_id = api.alice, new_id()
        session = await alice.create_session()
        request = pb.StartRunRequest(session_id=session.id, text="x", request_id=request_id)

        answers = await asyncio.gather(*(alice.call("StartRun", request) for _ in range(8)))
        request.when_busy = run_pb2.WHEN_BUSY_ENQUEUE
        answers.append(await alice.call("StartRun", request))
        request.text = "y"
        failure = await alice.failure("StartRun", request)

        assert len({answer.run.id for answer in answers}) == 1
        assert len({answer.message.id for answer in answers}) == 1
        assert (failure.code, failure.reason) == (StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")
        assert len(await alice.messages(session.id)) == 1

    async def test_a_busy_session_refuses_where_asked_to(self, api: RunningAgent) -> None:
        session = await api.alice.create_session()
        run = await api.alice.say(session.id)
        request = pb.StartRunRequest(
            session_id=session.id, text="x", when_busy=run_pb2.WHEN_BUSY_REJECT
        )

        failure = await api.alice.failure("StartRun", request)

        assert (failure.code, failure.reason) == (StatusCode.FAILED_PRECONDITION, "RUN_IN_PROGRESS")
        assert {"run_id": run.id} == failure.metadata

    async def test_a_deleted_agent_takes_nothing(self, api: RunningAgent) -> None:
        alice = api.alice
        session = await alice.create_session()
        delete = agent_service_pb2.DeleteAgentRequest(agent_id=session.agent_id)
        await alice.call("DeleteAgent", delete)

        request = pb.StartRunRequest(session_id=session.id, text="x")
        failure = await alice.failure("StartRun", request)

        assert (failure.code, failure.reason) == (StatusCode.FAILED_PRECONDITION, "AGENT_DELETED")
        assert {"agent_id": session.agent_id} == failure.metadata

    async def test_fifty_at_once_are_numbered_and_capped(self, api: RunningAgent) -> None:
        alice = api.alice
        session = await alice.create_session()
        request = pb.StartRunRequest(session_id=session.id, text="x")

        outcomes = await asyncio.gather(
            *(alice.call("StartRun", request) for _ in range(50)), return_exceptions=True
        )

        refused = [failure_of(each) for each in outcomes if isinstance(each, aio.AioRpcError)]
        accepted = [each for each in outcomes if not isinstance(each, BaseException)]
        limit = api.settings.queue_limit
        assert (limit, 50 - limit) == (len(accepted), len(refused))
        assert {(StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", str(limit))} == {
            (each.code, each.reason, each.metadata.get("limit")) for each in refused
        }
        numbers = sorted(each.message.sequence for each in accepted)
        assert list(range(1, limit + 1)) == numbers

    async def test_the_cap_says_where_and_when_to_ask_again(
        self, tmp_path: Path, empty_tables: str
    ) -> None:
        async with running(tmp_path, empty_tables, role="api", tenant_queue_limit=1) as api:
            await api.alice.say((await api.alice.create_session()).id)
            session = await api.alice.create_session()

            request = pb.StartRunRequest(session_id=session.id, text="x")
            failure = await api.alice.failure("StartRun", request)

        assert (failure.code, failure.reason) == (StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL")
        assert failure.metadata == {"limit": "1", "scope": "tenant"}
        assert failure.retry_after is not None

    async def test_an_interrupt_ends_what_waits_and_is_answered(
        self, service: RunningAgent
    ) -> None:
        alice = service.alice
        session = await alice.create_session()
        service.model.script(says("Never.").waiting_for(asyncio.Event()), says("Yes."))
        first = await alice.say(session.id, "first")
        await alice.until(first.id, lambda run: run.state == run_pb2.Run.STATE_THINKING)
        second = await alice.say(session.id, "second")

        third = await alice.say(session.id, "third", when_busy=run_pb2.WHEN_BUSY_INTERRUPT)

        for run in (first, second):
            ended = await alice.ended(run.id)
            assert (
                ended.state,
                ended.stop_reason,
                ended.discarded,
            ) == (CANCELLED, run_pb2.Run.STOP_REASON_INTERRUPTED, False)
        assert (await alice.ended(third.id)).state == FINISHED

    async def test_a_rollback_takes_what_was_said_from_the_models_sight(
        self, service: RunningAgent
    ) -> None:
        alice = service.alice
        session = await alice.create_session()
        service.model.script(says("Never.").waiting_for(asyncio.Event()), says("Yes."))
        first = await alice.say(session.id, "secret")
        await alice.until(first.id, lambda run: run.state == run_pb2.Run.STATE_THINKING)

        second = await alice.say(session.id, "instead", when_busy=run_pb2.WHEN_BUSY_ROLLBACK)
        await alice.ended(second.id)

        assert (await alice.run(first.id)).discarded
        messages = await alice.messages(session.id)
        assert [first.id, second.id, first.id, second.id] == [each.run_id for each in messages]
        assert [each.discarded for each in messages] == [True, False, True, False]
        assert "secret" not in str(service.model.requests[-1].json)


class TestListRuns:
    async def test_pages_go_newest_first(self, api: RunningAgent) -> None:
        alice = api.alice
        session = await alice.create_session()
        runs = [(await alice.say(session.id)).id for _ in range(3)]
        request = pb.ListRunsRequest(session_id=session.id, page_size=2)

        first = await alice.call("ListRuns", request)
        request.page_token = first.next_page_token
        second = await alice.call("ListRuns", request)

        assert runs[::-1] == [run.id for run in (*first.runs, *second.runs)]
        assert (len(first.runs), second.next_page_token) == (2, "")


class TestCancelRun:
    async def test_a_waiting_run_is_cancelled_at_once(self, api: RunningAgent) -> None:
        alice = api.alice
        session = await alice.create_session()
        run = await alice.say(session.id)

        first, again = await alice.cancel(run.id), await alice.cancel(run.id)

        assert (first.state, first.stop_reason) == (CANCELLED, run_pb2.Run.STOP_REASON_CANCELLED)
        assert first == again
        _, notice = await alice.messages(session.id)
        assert notice.role == session_pb2.Message.ROLE_SYSTEM
        assert notice.text

    async def test_a_run_that_asks_the_model_is_cancelled_within_a_second(
        self, service: RunningAgent
    ) -> None:
        alice = service.alice
        session = await alice.create_session()
        service.model.script(says("late").waiting_for(asyncio.Event()), says("Hello again."))
        run = await alice.say(session.id)
        await service.model.asked(1)

        asked = await alice.cancel(run.id)
        ended = await alice.ended(run.id, within=1)
        following = await alice.ended((await alice.say(session.id)).id)

        assert asked.cancel_requested
        assert (ended.state, ended.cancel_requested) == (CANCELLED, False)
        assert ended == await alice.cancel(run.id)
        assert following.state == FINISHED
        texts = [message.text for message in await alice.messages(session.id)]
        assert (texts[0], *texts[2:]) == ("Hello", "Hello", "Hello again.")

    async def test_cancelling_frees_the_runs_behind(self, service: RunningAgent) -> None:
        alice = service.alice
        session = await alice.create_session()
        service.model.script(says("late").waiting_for(asyncio.Event()), says("Second."))
        first, second = await alice.say(session.id), await alice.say(session.id)
        await service.model.asked(1)

        await alice.cancel(first.id)

        assert (await alice.ended(second.id)).state == FINISHED
        assert (await alice.messages(session.id))[-1].text == "Second."


class TestRetryRun:
    async def test_a_run_that_failed_goes_on(self, service: RunningAgent) -> None:
        alice = service.alice
        session = await alice.create_session()
        service.model.script(Reply(status=400, body=b"{}"), says("Now it works."))
        failed = await alice.ended((await alice.say(session.id)).id)
        assert failed.state == run_pb2.Run.STATE_ERROR

        answer = await service.caller(ADMIN).call("RetryRun", pb.RetryRunRequest(run_id=failed.id))

        assert (failed.id, 2) == (answer.run.id, answer.run.attempt)
        mended = await alice.until(failed.id, lambda run: run.state == FINISHED)
        assert not mended.HasField("error")
        question, notice, reply = await alice.messages(session.id)
        assert (notice.role, notice.discarded) == (session_pb2.Message.ROLE_SYSTEM, True)
        assert (reply.text, question.discarded, reply.discarded) == (
            "Now it works.",
            False,
            False,
        )

    async def test_only_a_run_that_failed_is(self, api: RunningAgent) -> None:
        run = await api.alice.say((await api.alice.create_session()).id)
        waiting = await api.alice.call("RetryRun", pb.RetryRunRequest(run_id=run.id))
        await api.alice.cancel(run.id)

        failure = await api.alice.failure("RetryRun", pb.RetryRunRequest(run_id=run.id))

        assert run == waiting.run
        assert (failure.code, failure.reason) == (StatusCode.FAILED_PRECONDITION, "RUN_NOT_FAILED")
        assert {"run_id": run.id, "state": "CANCELLED"} == failure.metadata


class TestReplayRun:
    async def test_a_run_is_driven_anew_without_model_or_tools(self, service: RunningAgent) -> None:
        alice = service.alice
        agent = await alice.create_agent(tools=["calculator"])
        session = await alice.create_session(agent.id)
        service.model.script(calls(("c1", "calculator", '{"expression": "6*7"}')), says("42."))
        run = await alice.ended((await alice.say(session.id, "How many?")).id)
        asked = len(service.model.requests)

        request = pb.ReplayRunRequest(run_id=run.id)
        replay = (await alice.call("ReplayRun", request)).replay

        assert len(service.model.requests) == asked
        assert replay == replay_pb2.Replay(
            run_id=run.id,
            identical=True,
            compared_messages=3,
            end_driven=True,
            recorded_stop_reason=run_pb2.Run.STOP_REASON_END_TURN,
            replayed_stop_reason=run_pb2.Run.STOP_REASON_END_TURN,
        )
        foreign = await service.caller(BOB).failure("ReplayRun", request)
        assert foreign.code == StatusCode.NOT_FOUND

    async def test_a_change_of_the_agent_shows(self, service: RunningAgent) -> None:
        alice = service.alice
        agent = await alice.create_agent(tools=["calculator"])
        session = await alice.create_session(agent.id)
        service.model.script(calls(("c1", "calculator", '{"expression": "6*7"}')), says("42."))
        run = await alice.ended((await alice.say(session.id, "How many?")).id)
        changed = agent_service_pb2.UpdateAgentRequest(
            agent=agent_pb2.Agent(id=agent.id), update_mask=FieldMask(paths=["tools"])
        )
        await alice.call("UpdateAgent", changed)

        request = pb.ReplayRunRequest(run_id=run.id, agent=pb.REPLAY_AGENT_CURRENT)
        replay = (await alice.call("ReplayRun", request)).replay

        assert not replay.identical
        assert replay.difference == replay_pb2.Difference(
            path="offered.tools", recorded='["calculator"]', replayed="[]"
        )

    async def test_a_run_that_waits_is_refused(self, api: RunningAgent) -> None:
        alice = api.alice
        session = await alice.create_session()
        run = await alice.say(session.id, "Hello")

        failure = await alice.failure("ReplayRun", pb.ReplayRunRequest(run_id=run.id))

        assert (failure.code, failure.reason) == (
            StatusCode.FAILED_PRECONDITION,
            "RUN_NOT_ENDED",
        )


class TestListToolCalls:
    async def test_pages_tell_what_became_of_each_call(self, service: RunningAgent) -> None:
        alice = service.alice
        agent = await alice.create_agent(tools=["current_time"])
        session = await alice.create_session(agent.id)
        service.model.script(
            calls(("a", "current_time", "{}"), ("b", "nothing", "{}")),
            calls(("c", "current_time", "{}")),
            says("Done."),
        )
        run = await alice.ended((await alice.say(session.id)).id)

        request = pb.ListToolCallsRequest(run_id=run.id, page_size=2)
        first = await alice.call("ListToolCalls", request)
        request.page_token = first.next_page_token
        last = await alice.call("ListToolCalls", request)

        done, failed = run_pb2.ToolCallRecord.STATE_DONE, run_pb2.ToolCallRecord.STATE_FAILED
        told = [*first.tool_calls, *last.tool_calls]
        assert [(each.tool_call_id, each.state, each.attempts, each.error) for each in told] == [
            ("a", done, 1, ""),
            ("b", failed, 0, "unknown_tool"),
            ("c", done, 1, ""),
        ]
        assert f"{run.id}:2:c" == told[2].idempotency_key
        assert (len(first.tool_calls), last.next_page_token) == (2, "")


class TestApprovals:
    """T-X9 and what else becomes of calls that wait for a person, over gRPC and PostgreSQL."""

    async def waiting(self, service: RunningAgent, *replies: Reply) -> run_pb2.Run:
        """A run of Alice's with a call that waits."""
        agent = await service.alice.create_agent(
            tools=["send", "read"],
            approvals=[agent_pb2.ToolApproval(tool="send", mode=ALWAYS)],
        )
        session = await service.alice.create_session(agent.id)
        service.model.script(calls(("a", "send", '{ "what": "all" }')), *replies)
        run = await service.alice.say(session.id)
        return await service.alice.until(run.id, lambda run: run.state == AWAITING)

    async def approval(self, service: RunningAgent, run: run_pb2.Run) -> approval_pb2.Approval:
        """What it waits for."""
        listed = await service.alice.call("ListApprovals", pb.ListApprovalsRequest(run_id=run.id))
        [approval] = listed.approvals
        assert isinstance(approval, approval_pb2.Approval)
        return approval

    async def test_an_approved_call_is_made_once_with_what_was_approved(
        self, tmp_path: Path, empty_tables: str
    ) -> None:
        send = PlainTool("send", idempotent=False)
        async with running(tmp_path, empty_tables, tools=[send, PlainTool("read")]) as service:
            run = await self.waiting(service, says("Sent."))
            before = await self.approval(service, run)
            ran_before = list(send.ran)
            answer = await service.alice.call("ResolveApproval", approves(before))
            ended = await service.alice.ended(run.id)
            replay = await service.alice.failure("ResolveApproval", approves(before))
            messages = await service.alice.messages(run.session_id)

        assert ran_before == []
        assert (
            before.state,
            before.arguments_json,
            before.tool_name,
        ) == (PENDING, '{"what":"all"}', "send")
        digest = hashlib.sha256(f"send\n{before.arguments_json}".encode()).hexdigest()
        assert digest == before.arguments_digest
        assert timedelta(minutes=10) == (
            before.expire_time.ToDatetime() - before.create_time.ToDatetime()
        )
        assert (
            answer.approval.state,
            answer.approval.resolver_user_id,
            answer.run.state,
        ) == (APPROVED, "alice", IDLE)
        assert (ended.state, send.ran) == (FINISHED, [{"what": "all"}])
        assert (
            replay.code,
            replay.reason,
        ) == (StatusCode.FAILED_PRECONDITION, "APPROVAL_RESOLVED")
        assert [each.text for each in messages[1:]] == ["", "found", "Sent."]

    async def test_a_denied_call_is_told_to_the_model(
        self, tmp_path: Path, empty_tables: str
    ) -> None:
        send = PlainTool("send")
        async with running(tmp_path, empty_tables, tools=[send, PlainTool("read")]) as service:
            run = await self.waiting(service, says("Then not."))
            approval = await self.approval(service, run)
            await service.alice.call(
                "ResolveApproval",
                pb.ResolveApprovalRequest(
                    approval_id=approval.id, decision=DENY, comment="not to all"
                ),
            )
            ended = await service.alice.ended(run.id)
            told = service.model.requests[-1].json["messages"][-1]["content"]

        assert (ended.state, send.ran) == (FINISHED, [])
        assert told == "Error: denied by the user: not to all"

    async def test_without_an_answer_it_is_denied(self, tmp_path: Path, empty_tables: str) -> None:
        send = PlainTool("send")
        async with running(
            tmp_path, empty_tables, tools=[send, PlainTool("read")], approval_seconds=0.3
        ) as service:
            run = await self.waiting(service, says("Nobody said a word."))
            approval = await self.approval(service, run)
            ended = await service.alice.ended(run.id)
            late = await service.alice.failure("ResolveApproval", approves(approval))
            approval = await self.approval(service, run)

        assert (ended.state, send.ran) == (FINISHED, [])
        assert (late.code, late.reason) == (StatusCode.FAILED_PRECONDITION, "APPROVAL_EXPIRED")
        assert approval.state == EXPIRED
        assert approval.expire_time == approval.resolve_time

    async def test_only_its_user_can_answer_and_only_what_was_asked(
        self, tmp_path: Path, empty_tables: str
    ) -> None:
        send = PlainTool("send")
        async with running(tmp_path, empty_tables, tools=[send, PlainTool("read")]) as service:
            run = await self.waiting(service)
            approval = await self.approval(service, run)
            others = [
                await service.caller(each).failure("ResolveApproval", approves(approval))
                for each in (BOB, ADMIN, STRANGER)
            ]
            unknown = await service.alice.failure(
                "ResolveApproval",
                pb.ResolveApprovalRequest(approval_id=new_id(), decision=DENY),
            )
            changed = await service.alice.failure(
                "ResolveApproval",
                pb.ResolveApprovalRequest(
                    approval_id=approval.id, decision=APPROVE, arguments_digest="0" * 64
                ),
            )
            unnamed = await service.alice.failure(
                "ResolveApproval",
                pb.ResolveApprovalRequest(approval_id=approval.id, decision=APPROVE),
            )
            undecided = await service.alice.failure(
                "ResolveApproval",
                pb.ResolveApprovalRequest(
                    approval_id=approval.id, arguments_digest=approval.arguments_digest
                ),
            )
            still = await self.approval(service, run)

        assert {StatusCode.NOT_FOUND} == {each.code for each in (*others, unknown)}
        assert (
            changed.code,
            changed.reason,
        ) == (StatusCode.FAILED_PRECONDITION, "APPROVAL_MISMATCH")
        assert [each.field for each in unnamed.violations] == ["arguments_digest"]
        assert [each.field for each in undecided.violations] == ["decision"]
        assert (approval, []) == (still, send.ran)

    async def test_it_outlives_a_restart_of_everything(
        self, tmp_path: Path, empty_tables: str
    ) -> None:
        tools = [PlainTool("send"), PlainTool("read")]
        async with running(tmp_path, empty_tables, tools=tools) as service:
            run = await self.waiting(service)
        async with running(tmp_path, empty_tables, tools=tools) as service:
            service.model.script(says("Sent."))
            same = await service.alice.run(run.id)
            await service.alice.call("ResolveApproval", approves(await self.approval(service, run)))
            ended = await service.alice.ended(run.id)

        assert run == same
        assert (ended.state, len(tools[0].ran)) == (FINISHED, 1)

    async def test_a_waiting_run_is_stopped_at_once(
        self, tmp_path: Path, empty_tables: str
    ) -> None:
        tools = [PlainTool("send"), PlainTool("read")]
        async with running(tmp_path, empty_tables, tools=tools) as service:
            run = await self.waiting(service)

            stopped = await service.alice.cancel(run.id)

            approval = await self.approval(service, run)
            messages = await service.alice.messages(run.session_id)
        assert (
            stopped.state,
            approval.state,
        ) == (CANCELLED, approval_pb2.Approval.STATE_CANCELLED)
        assert [each.tool_call_id for each in messages if each.tool_call_id] == ["a"]

    async def test_the_stream_tells_that_it_waits(self, tmp_path: Path, empty_tables: str) -> None:
        tools = [PlainTool("send"), PlainTool("read")]
        async with running(tmp_path, empty_tables, tools=tools) as service:
            run = await self.waiting(service)
            watch = service.alice.watch(run.session_id, after=0)
            async with asyncio.timeout(10):
                while not (event := await watch.read()).HasField("run"):
                    pass
            watch.cancel()

        assert (run.id, AWAITING) == (event.run.id, event.run.state)

    async def test_what_a_document_says_makes_outbound_calls_wait(
        self, tmp_path: Path, empty_tables: str
    ) -> None:
        send = PlainTool("send", effect=ToolEffect.OUTBOUND)
        async with running(tmp_path, empty_tables, tools=[send]) as service:
            base = service.knowledge.add(ALICE)
            agent = await service.alice.create_agent(tools=["send"], knowledge_base_ids=[base])
            session = await service.alice.create_session(agent.id)
            service.model.script(
                calls(("a", "send", '{"what": "before"}')),
                calls(("b", "query_knowledge", '{"query": "backups"}')),
                calls(("c", "send", '{"what": "after"}')),
            )
            run = await service.alice.say(session.id)
            run = await service.alice.until(run.id, lambda run: run.state == AWAITING)
            approval = await self.approval(service, run)

        assert send.ran == [{"what": "before"}]
        assert (approval.tool_call_id, approval.arguments_json) == ("c", '{"what":"after"}')

    async def test_a_page_of_them_can_be_asked_for(self, tmp_path: Path, empty_tables: str) -> None:
        tools = [PlainTool("send"), PlainTool("read")]
        async with running(tmp_path, empty_tables, tools=tools) as service:
            alice = service.alice
            agent = await alice.create_agent(
                tools=["send"], approvals=[agent_pb2.ToolApproval(tool="send", mode=ALWAYS)]
            )
            session = await alice.create_session(agent.id)
            service.model.script(calls(*((str(n), "send", f'{{"what": "{n}"}}') for n in (1, 2))))
            run = await alice.say(session.id)
            await alice.until(run.id, lambda run: run.state == AWAITING)

            request = pb.ListApprovalsRequest(session_id=session.id, page_size=1)
            first = await alice.call("ListApprovals", request)
            request.page_token = first.next_page_token
            second = await alice.call("ListApprovals", request)
            request.state = APPROVED
            foreign = await alice.failure("ListApprovals", request)
            none = await alice.call(
                "ListApprovals", pb.ListApprovalsRequest(session_id=session.id, state=APPROVED)
            )

        assert [each.approvals[0].tool_call_id for each in (first, second)] == ["1", "2"]
        assert (second.next_page_token, list(none.approvals)) == ("", [])
        assert foreign.reason == "INVALID_PAGE_TOKEN"

    async def test_an_agent_names_tools_that_there_are(self, service: RunningAgent) -> None:
        agent = agent_pb2.Agent(
            display_name="x", approvals=[agent_pb2.ToolApproval(tool="sned", mode=ALWAYS)]
        )

        failure = await service.alice.failure(
            "CreateAgent", agent_service_pb2.CreateAgentRequest(agent=agent)
        )

        assert failure.reason == "UNKNOWN_TOOL"
        assert [each.field for each in failure.violations] == ["agent.approvals[0].tool"]


class TestCase29:
    """tests/cases/29-cancel-dangling-calls."""

    expected = json.loads(
        (Path(__file__).parents[2] / "cases/29-cancel-dangling-calls/expected.json").read_text()
    )

    async def test_a_cancel_amid_two_calls_leaves_none_without_answer(
        self, tmp_path: Path, empty_tables: str
    ) -> None:
        quick, slow = PlainTool("quick"), PlainTool("slow", hook=sleep)
        slow.gives = lambda _: ToolResult("late")
        async with running(tmp_path, empty_tables, tools=[quick, slow]) as service:
            alice = service.alice
            agent = await alice.create_agent(tools=["quick", "slow"])
            session = await alice.create_session(agent.id)
            watch = alice.watch(session.id, after=0)
            service.model.script(calls(("a", "quick", "{}"), ("b", "slow", "{}")), says("Ready."))
            run = await alice.say(session.id)
            async with asyncio.timeout(10):
                while len(await alice.messages(session.id)) < 3:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)

            await alice.cancel(run.id)
            ended = await alice.ended(run.id, within=self.expected["within_seconds"])
            final = await last_state(watch, run.id)
            again = await alice.cancel(run.id)
            foreign = await service.caller(BOB).failure(
                "CancelRun", pb.CancelRunRequest(run_id=run.id)
            )
            calls_ = await alice.call("ListToolCalls", pb.ListToolCallsRequest(run_id=run.id))
            idle = await alice.call(
                "GetSession", agent_service_pb2.GetSessionRequest(session_id=session.id)
            )
            after = await alice.ended((await alice.say(session.id, "And now?")).id)
            messages = await alice.messages(session.id)
            sent = service.model.requests[-1].json["messages"]

        assert self.expected["run_status"] == run_pb2.Run.State.Name(ended.state)[6:].lower()
        assert (ended, CANCELLED, "OK") == (again, final, self.expected["second_cancel"])
        assert self.expected["foreign_run"] == foreign.code.name
        assert (idle.session.active_run_id, after.state) == ("", FINISHED)
        assert [each.text for each in messages[2:4]] == ["found", "cancelled by the user"]
        assert "late" not in [each.text for each in messages]
        assert [each.state for each in calls_.tool_calls] == [
            run_pb2.ToolCallRecord.STATE_DONE,
            run_pb2.ToolCallRecord.STATE_UNKNOWN,
        ]
        answered = {each.get("tool_call_id") for each in sent}
        asked = {call["id"] for each in sent for call in each.get("tool_calls", ())}
        assert self.expected["unanswered_call_ids_in_next_request"] == sorted(asked - answered)

    async def test_a_run_whose_worker_died_is_given_up_within_its_lease(
        self, tmp_path: Path, empty_tables: str
    ) -> None:
        """With a crash limit of one, where others would go on with it."""
        assert self.expected["after_worker_death"] == "failed within the lease time"
        keys = Keys(tmp_path / "identity")
        async with running(tmp_path, empty_tables, keys=keys, role="api") as api:
            session = await api.alice.create_session()
            run = await api.alice.say(session.id)
            async with agent_pool(empty_tables) as pool:
                await postgres_stores(pool).claimed(lease=timedelta(seconds=1))
            async with running(
                tmp_path, empty_tables, keys=keys, role="worker", crash_limit=1
            ) as worker:
                worker.model.script(says("Ready."))
                failed = await api.alice.ended(run.id)
                after = await api.alice.ended((await api.alice.say(session.id)).id)

        assert (failed.state, failed.stop_reason) == (
            run_pb2.Run.STATE_ERROR,
            run_pb2.Run.STOP_REASON_CRASH_LOOP,
        )
        assert after.state == FINISHED


async def sleep(_: object) -> None:
    """Take longer than anybody waits."""
    await asyncio.sleep(60)


async def last_state(watch: Any, run_id: str) -> run_pb2.Run.State.ValueType:
    """The first final state of a run that its watcher is told."""
    async with asyncio.timeout(10):
        while True:
            event = await watch.read()
            if event.HasField("run") and event.run.id == run_id and event.run.HasField("end_time"):
                state: run_pb2.Run.State.ValueType = event.run.state
                return state


class TestWatchSession:
    async def test_a_whole_run_is_seen_as_it_goes_on(self, service: RunningAgent) -> None:
        alice = service.alice
        session = await alice.create_session()
        service.model.script(calls(("c", "current_time", "{}")), says("Late."))
        watch = alice.watch(session.id, 0)
        await alice.say(session.id)

        assert await sequences(watch, 4) == [1, 2, 3, 4]
        async with asyncio.timeout(10):
            while (event := await watch.read()).run.state != FINISHED:
                assert not event.HasField("message")
        assert event.through_sequence == 4
        watch.cancel()

    async def test_commits_between_replay_and_live_are_told_once(self, api: RunningAgent) -> None:
        """Messages are committed at random moments around the watch's beginning."""
        alice = api.alice
        agent = await alice.create_agent()
        timing = random.Random(31)

        async def once() -> list[int]:
            session = await alice.create_session(agent.id)
            await alice.say(session.id)

            async def commit() -> None:
                for _ in range(3):
                    await asyncio.sleep(timing.random() * 0.02)
                    await alice.say(session.id)

            async with asyncio.TaskGroup() as group:
                group.create_task(commit())
                await asyncio.sleep(timing.random() * 0.02)
                watch = alice.watch(session.id, 1)
                heard = await sequences(watch, 3)
            watch.cancel()
            return heard

        for _ in range(20):
            heard = await asyncio.gather(*(once() for _ in range(10)))
            assert heard == [[2, 3, 4]] * 10

    async def test_writers_on_several_connections_leave_no_hole(
        self, tmp_path: Path, empty_tables: str, api: RunningAgent
    ) -> None:
        alice = api.alice
        session = await alice.create_session()
        async with running(tmp_path, empty_tables, keys=api.keys, role="api") as other:
            watch = alice.watch(session.id, 0)
            speakers = [caller.alice for caller in (api, other) for _ in range(5)]
            await asyncio.gather(*(speaker.say(session.id) for speaker in speakers * 2))

            assert list(range(1, 21)) == await sequences(watch, 20)
            watch.cancel()

    async def test_a_sequence_ahead_is_refused(self, api: RunningAgent) -> None:
        session = await api.alice.create_session()
        await api.alice.say(session.id)

        with pytest.raises(aio.AioRpcError) as refused:
            await api.alice.watch(session.id, 99).read()

        failure = failure_of(refused.value)
        assert (failure.code, failure.reason) == (StatusCode.OUT_OF_RANGE, "SEQUENCE_AHEAD")
        assert failure.metadata == {"last_sequence": "1"}

    async def test_a_deleted_session_ends_its_watches(self, api: RunningAgent) -> None:
        alice = api.alice
        session = await alice.create_session()
        await alice.say(session.id)
        watch = alice.watch(session.id, 0)
        await events(watch, 2)

        delete = agent_service_pb2.DeleteSessionRequest(session_id=session.id)
        await alice.call("DeleteSession", delete)

        with pytest.raises(aio.AioRpcError) as ended:
            await events(watch, 1)
        assert ended.value.code() == StatusCode.NOT_FOUND

    async def test_a_replica_that_stops_sends_its_watchers_away_at_once(
        self, api: RunningAgent
    ) -> None:
        session = await api.alice.create_session()
        await api.alice.say(session.id)
        watch = api.alice.watch(session.id, 0)
        await events(watch, 2)

        async with asyncio.timeout(api.settings.grace_seconds):
            await api.stop()

        [going] = await events(watch, 1)
        assert (going.go_away.resume_after_sequence, going.through_sequence) == (1, 1)
        assert await watch.read() is aio.EOF
        assert await watch.code() is StatusCode.OK

    async def test_silence_is_filled_with_heartbeats(
        self, tmp_path: Path, empty_tables: str
    ) -> None:
        async with running(
            tmp_path, empty_tables, role="api", heartbeat_seconds=0.05, poll_seconds=10
        ) as api:
            session = await api.alice.create_session()
            watch = api.alice.watch(session.id)

            heard = await events(watch, 2)
            watch.cancel()

        assert [event.WhichOneof("event") for event in heard] == ["heartbeat", "heartbeat"]
        assert [event.through_sequence for event in heard] == [0, 0]

    async def test_a_reader_that_stops_reading_holds_no_connection(
        self, tmp_path: Path, empty_tables: str
    ) -> None:
        """More watchers that do not read than there are connections; all others go on."""
        async with running(tmp_path, empty_tables, role="api", database_pool=2) as api:
            alice = api.alice
            session = await alice.create_session()
            for _ in range(12):
                await alice.say(session.id, "x" * MIB)
            stuck = [alice.watch(session.id, 0) for _ in range(6)]
            for watch in stuck:
                await events(watch, 1)

            other = await alice.create_session(session.agent_id)
            await asyncio.gather(*(alice.say(other.id) for _ in range(10)))

            assert list(range(2, 13)) == await sequences(stuck[0], 11)
            for watch in stuck:
                watch.cancel()

    async def test_nobody_elses_session_is_watched(self, api: RunningAgent) -> None:
        session = await api.alice.create_session()

        with pytest.raises(aio.AioRpcError) as refused:
            await api.caller(BOB).watch(session.id, 0).read()

        assert refused.value.code() == StatusCode.NOT_FOUND
