"""Messages in and messages out, with a real agent service behind the gateway."""

import asyncio
import json
import random
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from chatmind.agent.v1 import run_pb2
from chatmind.gateway.v1 import gateway_service_pb2 as pb
from chatmind.gateway.v1 import message_pb2
from grpc import aio

from services.common.errors import UnavailableError
from services.common.status import RpcFailure, failure_of
from services.gateway.main import running_gateway
from services.gateway.settings import GatewaySettings
from tests.gateway.fake_agent import Session
from tests.gateway.installation import ADMIN, ENOUGH, Installation, bearer, eventually

CASES = Path(__file__).parents[2] / "cases"
STRANGER = str(uuid.uuid4())
RUN = str(uuid.uuid4())
PLAYS, AT_ONCE = 5, 40
"""How often the timeline of case 31 is played, and so many times at once each time."""

RESTARTED_AFTER = 5
"""The moment of it after which the gateway is another one."""

HANDLER_ENDS_WITHIN = 5.0
"""Seconds that case 32 gives the handler of a client that has left."""


async def failure(call: Any) -> RpcFailure:
    """What a call fails with."""
    with pytest.raises(aio.AioRpcError) as caught:
        await call
    return failure_of(caught.value)


async def send(gateway: Installation, **fields: Any) -> pb.SendMessageResponse:
    """Send a message as the administrator."""
    request = pb.SendMessageRequest(**{"text": "hello", **fields})
    response: pb.SendMessageResponse = await gateway.messages.SendMessage(
        request, metadata=bearer(gateway.key)
    )
    return response


def stream(gateway: Installation, session: Session, **fields: Any) -> Any:
    """Follow a session as the administrator."""
    request = pb.StreamMessagesRequest(session_id=session.id, **fields)
    return gateway.messages.StreamMessages(request, metadata=bearer(gateway.key))


async def read(call: Any, count: int) -> list[int]:
    """The sequences of the next messages of a stream."""
    sequences: list[int] = []
    async with asyncio.timeout(ENOUGH):
        while len(sequences) < count:
            response = await call.read()
            if response.HasField("message"):
                assert response.message.sequence == response.through_sequence
                sequences.append(response.message.sequence)
    return sequences


class TestSendMessage:
    async def test_a_message_to_an_agent_opens_a_session(self, gateway: Installation) -> None:
        sent = await send(gateway, agent_id=gateway.agent.agent_id)

        session = gateway.agent.sessions[sent.session_id]
        assert session.owner == ADMIN
        assert [message.text for message in session.messages] == ["hello"]
        assert sent == pb.SendMessageResponse(
            session_id=session.id,
            run_id=session.messages[0].run_id,
            message_id=session.messages[0].id,
            sequence=1,
        )

    async def test_a_message_to_a_session_continues_it(self, gateway: Installation) -> None:
        session = gateway.agent.open(ADMIN)
        await session.commit("before")

        sent = await send(gateway, session_id=session.id, text="more\0")

        assert (sent.session_id, sent.sequence) == (session.id, 2)
        assert session.messages[-1].text == "more\ufffd"

    @pytest.mark.parametrize("to", ["agent_id", "session_id"])
    async def test_the_same_request_id_starts_one_run(self, gateway: Installation, to: str) -> None:
        session = gateway.agent.open(ADMIN)
        target = {"agent_id": gateway.agent.agent_id, "session_id": session.id}[to]
        request_id = str(uuid.uuid4())

        answers = [await send(gateway, **{to: target}, request_id=request_id) for _ in range(3)]

        assert [answers[0]] * 3 == answers
        assert (1, 2 if to == "agent_id" else 1) == (
            gateway.agent.started,
            len(gateway.agent.sessions),
        )

    async def test_a_repeat_finds_the_session_where_the_run_was_not_started(
        self, gateway: Installation
    ) -> None:
        request_id = str(uuid.uuid4())
        target = {"agent_id": gateway.agent.agent_id, "request_id": request_id}
        await send(gateway, **target, text="first")
        sessions = list(gateway.agent.sessions)

        failed = await failure(send(gateway, **target, text="other"))

        assert (failed.code, failed.reason) == (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")
        assert sessions == list(gateway.agent.sessions)

    async def test_a_line_that_breaks_is_tried_again_even_without_a_request_id(
        self, gateway: Installation
    ) -> None:
        await gateway.agent_server.kill()
        sending = asyncio.ensure_future(send(gateway, agent_id=gateway.agent.agent_id))
        await asyncio.sleep(0)
        await gateway.agent_server.start()

        assert (await sending).sequence == 1
        assert gateway.agent.started == 1

    async def test_a_refusal_has_the_gateways_own_reason(self, gateway: Installation) -> None:
        refusals: list[tuple[dict[str, Any], str, str, dict[str, str]]] = [
            (
                {"agent_id": STRANGER},
                "NOT_FOUND",
                "NOT_FOUND",
                {"resource": "agent", "id": STRANGER},
            ),
            (
                {"session_id": STRANGER},
                "NOT_FOUND",
                "NOT_FOUND",
                {"resource": "session", "id": STRANGER},
            ),
            ({"session_id": STRANGER, "text": ""}, "INVALID_ARGUMENT", "INVALID_FIELD", {}),
        ]
        for fields, code, reason, metadata in refusals:
            failed = await failure(send(gateway, **fields))

            assert (code, reason, metadata) == (failed.code.name, failed.reason, failed.metadata)

    async def test_a_busy_session_names_the_run(self, gateway: Installation) -> None:
        first = await send(gateway, agent_id=gateway.agent.agent_id)

        failed = await failure(
            send(gateway, session_id=first.session_id, when_busy=pb.WHEN_BUSY_REJECT)
        )

        assert failed.code is grpc.StatusCode.FAILED_PRECONDITION
        assert failed.reason == "RUN_IN_PROGRESS"
        assert failed.metadata == {"run_id": first.run_id}

    async def test_a_refused_field_is_named(self, gateway: Installation) -> None:
        session = gateway.agent.open(ADMIN)

        failed = await failure(
            send(gateway, session_id=session.id, when_busy=pb.WHEN_BUSY_ROLLBACK)
        )

        assert failed.code is grpc.StatusCode.INVALID_ARGUMENT
        assert [violation.field for violation in failed.violations] == ["when_busy"]

    async def test_an_agent_service_that_is_down_is_told(self, gateway: Installation) -> None:
        await gateway.agent_server.kill()

        failed = await failure(send(gateway, agent_id=gateway.agent.agent_id))

        assert (failed.code, failed.reason) == (grpc.StatusCode.UNAVAILABLE, "SERVICE_UNAVAILABLE")
        assert failed.metadata == {"service": "agent"}
        assert failed.retry_after is not None


class TestCancelRun:
    async def test_a_run_is_cancelled_and_can_be_again(self, gateway: Installation) -> None:
        sent = await send(gateway, agent_id=gateway.agent.agent_id)
        request = pb.CancelRunRequest(run_id=sent.run_id)

        for _ in range(2):
            response = await gateway.messages.CancelRun(request, metadata=bearer(gateway.key))

            assert response.run == message_pb2.RunUpdate(
                run_id=sent.run_id,
                session_id=sent.session_id,
                state=message_pb2.RunUpdate.STATE_CANCELLED,
            )

    async def test_an_unknown_run_is_not_found(self, gateway: Installation) -> None:
        request = pb.CancelRunRequest(run_id=STRANGER)

        failed = await failure(gateway.messages.CancelRun(request, metadata=bearer(gateway.key)))

        assert (failed.code, failed.metadata["resource"]) == (grpc.StatusCode.NOT_FOUND, "run")


class TestStreamMessages:
    async def test_history_comes_first_then_what_follows(self, gateway: Installation) -> None:
        session = gateway.agent.open(ADMIN)
        for number in range(3):
            await session.commit(f"message {number}")
        call = stream(gateway, session, after_sequence=1)

        assert await read(call, 2) == [2, 3]
        await session.commit("live")

        assert await read(call, 1) == [4]

    async def test_an_unset_sequence_means_what_is_new(self, gateway: Installation) -> None:
        session = gateway.agent.open(ADMIN)
        await session.commit("old")
        call = stream(gateway, session)
        await eventually(lambda: gateway.agent.watches == 1)
        await session.commit("new")

        assert await read(call, 1) == [2]

    async def test_silence_is_filled_with_heartbeats(self, gateway: Installation) -> None:
        session = gateway.agent.open(ADMIN)
        await session.commit("old")
        call = stream(gateway, session, after_sequence=1)

        async with asyncio.timeout(ENOUGH):
            heartbeat = await call.read()

        assert heartbeat.HasField("heartbeat")
        assert heartbeat.heartbeat.time.seconds > 0
        assert heartbeat.through_sequence == 1

    async def test_run_states_come_between(self, gateway: Installation) -> None:
        session = gateway.agent.open(ADMIN)
        call = stream(gateway, session, after_sequence=0)
        await session.change(RUN, "THINKING")
        first = await call.read()
        await session.change(RUN, "FINISHED")
        second = await call.read()

        states = [first.run.state, second.run.state]
        assert states == [
            message_pb2.RunUpdate.STATE_THINKING,
            message_pb2.RunUpdate.STATE_FINISHED,
        ]

    async def test_a_sequence_past_the_newest_is_refused(self, gateway: Installation) -> None:
        session = gateway.agent.open(ADMIN)

        failed = await failure(read(stream(gateway, session, after_sequence=99), 1))

        assert (failed.code, failed.reason) == (grpc.StatusCode.OUT_OF_RANGE, "SEQUENCE_AHEAD")
        assert failed.metadata == {"last_sequence": "0"}

    async def test_a_negative_sequence_is_invalid(self, gateway: Installation) -> None:
        session = gateway.agent.open(ADMIN)

        failed = await failure(read(stream(gateway, session, after_sequence=-1), 1))

        assert failed.code is grpc.StatusCode.INVALID_ARGUMENT
        assert [violation.field for violation in failed.violations] == ["after_sequence"]

    async def test_an_agent_service_that_breaks_and_returns_costs_no_message_and_repeats_none(
        self, gateway: Installation
    ) -> None:
        session = gateway.agent.open(ADMIN)
        call = stream(gateway, session, after_sequence=0)
        reading = asyncio.ensure_future(read(call, 60))
        for restart in range(6):
            for _ in range(5):
                await session.commit("live")
            await eventually(lambda: gateway.agent.watches == 1)
            if restart % 2:
                gateway.agent.draining.set()
                await session.commit("drained")
                await eventually(lambda: gateway.agent.watches == 0)
            else:
                await session.commit("killed")
            await gateway.agent_server.kill()
            for _ in range(4):
                await session.commit("meanwhile")
            gateway.agent.draining.clear()
            await gateway.agent_server.start()

        assert await reading == list(range(1, 61))

    async def test_a_run_state_is_told_once_over_a_break(self, gateway: Installation) -> None:
        session = gateway.agent.open(ADMIN)
        await session.change(RUN, "THINKING")
        call = stream(gateway, session, after_sequence=0)
        first = await call.read()
        await gateway.agent_server.kill()
        await gateway.agent_server.start()
        await session.commit("after")

        second = await call.read()
        while second.HasField("heartbeat"):
            second = await call.read()

        assert first.HasField("run")
        assert second.HasField("message")

    async def test_an_agent_service_that_is_down_at_first_is_told(
        self, gateway: Installation
    ) -> None:
        session = gateway.agent.open(ADMIN)
        await gateway.agent_server.kill()

        failed = await failure(read(stream(gateway, session, after_sequence=0), 1))

        assert (failed.code, failed.reason) == (grpc.StatusCode.UNAVAILABLE, "SERVICE_UNAVAILABLE")

    async def test_a_refusal_of_a_moment_is_no_end(self, gateway: Installation) -> None:
        session = gateway.agent.open(ADMIN)
        await session.commit("there")
        gateway.agent.refusals.append(UnavailableError("The database is busy."))

        assert await read(stream(gateway, session, after_sequence=0), 1) == [1]

    async def test_clients_that_leave_leave_nothing_behind(self, gateway: Installation) -> None:
        session = gateway.agent.open(ADMIN)
        first = stream(gateway, session, after_sequence=0)
        await first.read()
        before = len(asyncio.all_tasks())
        first.cancel()
        calls = [stream(gateway, session, after_sequence=0) for _ in range(50)]
        await eventually(lambda: gateway.agent.watches == 50)

        for call in calls:
            call.cancel()
        await eventually(lambda: gateway.agent.watches == 0)
        await eventually(lambda: len(asyncio.all_tasks()) <= before)

        assert (await send(gateway, session_id=session.id)).sequence == 1

    async def test_many_clients_that_drop_and_resume_each_see_all_once_in_order(
        self, gateway: Installation
    ) -> None:
        session = gateway.agent.open(ADMIN)
        chance = random.Random(31)

        async def follow() -> list[int]:
            seen: list[int] = []
            while len(seen) < 40:
                call = stream(gateway, session, after_sequence=len(seen))
                seen += await read(call, chance.randint(1, 40 - len(seen)))
                call.cancel()
            return seen

        async with asyncio.TaskGroup() as group:
            followers = [group.create_task(follow()) for _ in range(20)]
            for _ in range(40):
                await session.commit("live")
                await asyncio.sleep(chance.uniform(0, 0.01))

        assert [list(range(1, 41))] * 20 == [task.result() for task in followers]


class TestResumeWithoutLoss:
    """tests/cases/31-resume-no-loss-no-dup, by its timeline, with a gateway in between."""

    async def test_the_timeline(self, gateway: Installation) -> None:
        timeline, expected = self.case()
        chance = random.Random(31)

        for _ in range(PLAYS):
            plays = (play(gateway, gateway, timeline, chance) for _ in range(AT_ONCE))
            for seen in await asyncio.gather(*plays):
                self.check(seen, expected)

    async def test_a_restart_of_the_gateway_in_between_changes_nothing(
        self, gateway: Installation
    ) -> None:
        timeline, expected = self.case()
        async with (
            running_gateway(gateway.settings) as other,
            aio.insecure_channel(f"127.0.0.1:{other.port}") as channel,
        ):
            successor = replace(gateway, port=other.port, channel=channel)
            seen = await play(gateway, successor, timeline, random.Random(31))

        self.check(seen, expected)

    def case(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """The timeline, and what each client has to see."""
        folder = CASES / "31-resume-no-loss-no-dup"
        timeline = json.loads((folder / "timeline.json").read_text(encoding="utf-8"))
        expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
        assert expected["D"] == "error or resync event"
        return timeline, expected

    def check(self, seen: dict[str, Any], expected: dict[str, Any]) -> None:
        """Compare; D gets an error."""
        assert seen == {**expected, "D": "OUT_OF_RANGE"}


async def play(
    gateway: Installation,
    successor: Installation,
    timeline: list[dict[str, Any]],
    chance: random.Random,
) -> dict[str, Any]:
    """What each client of the timeline has seen; the seventh moment comes with random delays.

    Args:
        gateway: where clients subscribe up to the fifth moment.
        successor: where they subscribe afterwards; the first is stopped then, if it is another one.
        timeline: what happens.
        chance: gives the delays.
    """
    session = gateway.agent.open(ADMIN)
    calls: dict[str, Any] = {}
    seen: dict[str, Any] = {}

    async def step(entry: dict[str, Any]) -> None:
        there = gateway if entry["t"] <= RESTARTED_AFTER else successor
        if entry["t"] == 7:
            await asyncio.sleep(chance.uniform(0, 0.01))
        if entry["do"].startswith("commit"):
            assert await session.commit("text") == entry["seq"]
        elif entry["do"] == "client subscribes":
            calls[entry["client"]] = stream(there, session, after_sequence=entry["after"])
        else:
            seen["A first"] = await read(calls["A"], entry["seq"])
            calls["A"].cancel()

    for moment in sorted({entry["t"] for entry in timeline}):
        async with asyncio.TaskGroup() as group:
            for entry in (each for each in timeline if each["t"] == moment):
                group.create_task(step(entry))
        if moment == RESTARTED_AFTER and successor is not gateway:
            await gateway.stop()
    seen["A second"] = await read(calls["A"], 4)
    seen["B"] = await read(calls["B"], 6)
    seen["C"] = [] if (await calls["C"].read()).HasField("heartbeat") else ["a message"]
    seen["D"] = (await failure(read(calls["D"], 1))).code.name
    for call in calls.values():
        call.cancel()
    return seen


class TestClientGone:
    """tests/cases/32-idle-proxy-client-gone, on the side of gRPC."""

    async def test_the_work_goes_on_and_nothing_stays_behind(self, gateway: Installation) -> None:
        folder = CASES / "32-idle-proxy-client-gone"
        expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
        request_id = str(uuid.uuid4())
        sent = await send(gateway, agent_id=gateway.agent.agent_id, request_id=request_id)
        session = gateway.agent.sessions[sent.session_id]
        call = stream(gateway, session, after_sequence=1)
        await call.read()
        before = gateway.agent.watches
        call.cancel()
        async with asyncio.timeout(HANDLER_ENDS_WITHIN):
            await eventually(lambda: gateway.agent.watches == before - 1)

        await session.commit("the answer")
        again = await send(gateway, agent_id=gateway.agent.agent_id, request_id=request_id)

        assert gateway.agent.watches == expected["leaked_handlers"]
        assert gateway.agent.started == expected["runs_started_for_same_request_id"]
        assert again == sent
        stored = await read(stream(gateway, session, after_sequence=1), 1) == [2]
        assert stored is expected["answer_stored_after_client_left"]

    def test_silence_is_shorter_than_any_proxy_waits(self) -> None:
        folder = CASES / "32-idle-proxy-client-gone"
        expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
        usual = GatewaySettings.model_fields["heartbeat_seconds"].default

        assert usual < expected["max_silence_seconds"]


class TestOthersSessions:
    """tests/cases/42-other-users-session, on what the gateway itself answers."""

    async def test_anothers_reads_like_one_that_is_none(self, gateway: Installation) -> None:
        expected = json.loads(
            (CASES / "42-other-users-session/expected.json").read_text(encoding="utf-8")
        )
        theirs = await send(gateway, agent_id=gateway.agent.agent_id)
        _, secret = await gateway.make_key("eve")
        before = len(gateway.agent.sessions[theirs.session_id].messages)
        answers: list[set[tuple[str, str, str]]] = []
        for session_id, run_id in ((theirs.session_id, theirs.run_id), (STRANGER, STRANGER)):
            saying = pb.SendMessageRequest(session_id=session_id, text="hello")
            watching = pb.StreamMessagesRequest(session_id=session_id, after_sequence=0)
            resuming = pb.StreamMessagesRequest(session_id=session_id)
            failures = [
                await failure(gateway.messages.SendMessage(saying, metadata=bearer(secret))),
                await failure(
                    read(gateway.messages.StreamMessages(watching, metadata=bearer(secret)), 1)
                ),
                await failure(
                    read(gateway.messages.StreamMessages(resuming, metadata=bearer(secret)), 1)
                ),
                await failure(
                    gateway.messages.CancelRun(
                        pb.CancelRunRequest(run_id=run_id), metadata=bearer(secret)
                    )
                ),
            ]
            answers.append(
                {
                    (failed.code.name, failed.reason, failed.message.replace(each, "ID"))
                    for failed, each in zip(
                        failures, [session_id, session_id, session_id, run_id], strict=True
                    )
                }
            )

        assert expected["same_answer_as_random_id"] is (answers[0] == answers[1])
        assert {code for code, _, _ in answers[0]} <= set(expected["foreign_id"])
        after = gateway.agent.sessions[theirs.session_id]
        assert len(after.messages) - before == expected["effects_on_A"]
        assert [run.state for run in after.runs.values()] == [run_pb2.Run.STATE_IDLE]
