"""The users of a campaign: they send, repeat what got no answer, follow sessions and resume."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import grpc
from chatmind.agent.v1 import (
    agent_pb2,
    agent_service_pb2,
    agent_service_pb2_grpc,
    run_service_pb2,
    run_service_pb2_grpc,
    session_pb2,
)
from chatmind.gateway.v1 import gateway_service_pb2, gateway_service_pb2_grpc, message_pb2
from grpc import aio

from services.common.ids import new_id
from tests.chaos.history import Delivery, Outcome, Submit, Subscription
from tests.chaos.system import ENOUGH, System

CHANNEL = [
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 400),
]
_BALANCED = json.dumps(
    {"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": ""}}
)

# After one of these, the call may have had its effect or not.
_UNDECIDED = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
T = TypeVar("T")
WhenBusy: TypeAlias = gateway_service_pb2.WhenBusy.ValueType

_USUAL = gateway_service_pb2.WHEN_BUSY_UNSPECIFIED
_TRY_SECONDS = 3.0
_PAUSE_SECONDS = 0.2
_FINAL = {
    message_pb2.RunUpdate.STATE_FINISHED: "finished",
    message_pb2.RunUpdate.STATE_ERROR: "error",
    message_pb2.RunUpdate.STATE_CANCELLED: "cancelled",
}


@dataclass(frozen=True, slots=True)
class Door:
    """One way into the system: a channel to a gateway, or to a proxy before it."""

    channel: aio.Channel
    metadata: tuple[tuple[str, str], ...]

    async def call(self, stub: Any, method: str, request: Any, **more: Any) -> Any:
        """One call of a method of a stub's class."""
        return await getattr(stub(self.channel), method)(request, metadata=self.metadata, **more)

    async def send(
        self, session_id: str, text: str, *, request_id: str, when_busy: WhenBusy = _USUAL
    ) -> gateway_service_pb2.SendMessageResponse:
        """Send a message, once."""
        request = gateway_service_pb2.SendMessageRequest(
            session_id=session_id, text=text, request_id=request_id, when_busy=when_busy
        )
        stub = gateway_service_pb2_grpc.GatewayServiceStub
        answer: gateway_service_pb2.SendMessageResponse = await self.call(
            stub, "SendMessage", request, timeout=_TRY_SECONDS
        )
        return answer

    async def cancel(self, run_id: str) -> None:
        """Ask for a run to be stopped."""
        request = gateway_service_pb2.CancelRunRequest(run_id=run_id)
        stub = gateway_service_pb2_grpc.GatewayServiceStub
        await self.call(stub, "CancelRun", request, timeout=_TRY_SECONDS)

    async def get_run(self, run_id: str) -> Any:
        """One run."""
        request = run_service_pb2.GetRunRequest(run_id=run_id)
        stub = run_service_pb2_grpc.RunServiceStub
        return (await self.call(stub, "GetRun", request, timeout=_TRY_SECONDS)).run

    async def create_agent(self, **fields: Any) -> str:
        """A new agent that has the campaigns' tools."""
        agent = agent_pb2.Agent(display_name="chaos", tools=["look", "pay", "die"], **fields)
        request = agent_service_pb2.CreateAgentRequest(agent=agent)
        stub = agent_service_pb2_grpc.AgentServiceStub
        made: agent_service_pb2.CreateAgentResponse = await self.call(
            stub, "CreateAgent", request, timeout=ENOUGH
        )
        return made.agent.id

    async def create_session(self, agent_id: str) -> str:
        """A new session."""
        session = session_pb2.Session(agent_id=agent_id)
        request = agent_service_pb2.CreateSessionRequest(session=session)
        stub = agent_service_pb2_grpc.AgentServiceStub
        made: agent_service_pb2.CreateSessionResponse = await self.call(
            stub, "CreateSession", request, timeout=ENOUGH
        )
        return made.session.id

    def stream(self, session_id: str, after: int) -> Any:
        """What comes after a sequence."""
        request = gateway_service_pb2.StreamMessagesRequest(
            session_id=session_id, after_sequence=after
        )
        stub = gateway_service_pb2_grpc.GatewayServiceStub(self.channel)
        return stub.StreamMessages(request, metadata=self.metadata)


@dataclass(slots=True)
class Clients:
    """Users that come in through any gateway, and write down what they see.

    Attributes:
        doors: to the gateways.
        submits: what was sent, with its outcome.
    """

    doors: Sequence[Door]
    submits: list[Submit] = field(default_factory=list)

    async def open_session(self) -> str:
        """A session with an agent of its own, as soon as one can be had."""
        agent_id = await persistently(self.doors[0].create_agent)
        return await persistently(lambda: self.doors[0].create_session(agent_id))

    async def submit(
        self, session_id: str, text: str, *, when_busy: WhenBusy = _USUAL, patience: float = ENOUGH
    ) -> Submit:
        """Send a message, again and again until it is known what became of it."""
        request_id, tries, outcome, run_id = new_id(), 0, Outcome.UNKNOWN, ""
        until = asyncio.get_running_loop().time() + patience
        while outcome is Outcome.UNKNOWN and asyncio.get_running_loop().time() < until:
            tries += 1
            try:
                answer = await random.choice(self.doors).send(
                    session_id, text, request_id=request_id, when_busy=when_busy
                )
            except aio.AioRpcError as error:
                if error.code() not in _UNDECIDED:
                    outcome = Outcome.FAIL
                    break
                await asyncio.sleep(_PAUSE_SECONDS * random.uniform(0.5, 1.5))
            else:
                outcome, run_id = Outcome.OK, answer.run_id
        submit = Submit(session_id, text, outcome, run_id, tries)
        self.submits.append(submit)
        return submit

    async def cancel(self, run_id: str) -> None:
        """Ask for a run to be stopped, again and again until that is known."""
        await persistently(lambda: random.choice(self.doors).cancel(run_id))


async def follow(door: Door, subscription: Subscription) -> None:
    """Receive all that a session has to tell, resuming after every interruption, until cancelled.

    Nothing is dropped or put in order here: what arrives is written down as it arrives.
    """
    while True:
        try:
            async for event in door.stream(subscription.session_id, subscription.last):
                _write_down(event, subscription)
        except aio.AioRpcError as error:
            if error.code() not in _UNDECIDED:
                raise
        await asyncio.sleep(_PAUSE_SECONDS * random.uniform(0.25, 1.0))


def _write_down(
    event: gateway_service_pb2.StreamMessagesResponse, subscription: Subscription
) -> None:
    kind = event.WhichOneof("event")
    if kind == "message":
        message = event.message
        subscription.received.append(Delivery(message.sequence, message.id, message.run_id))
    elif kind == "run" and event.run.state in _FINAL:
        told = subscription.ended.setdefault(event.run.run_id, set())
        told.add(_FINAL[event.run.state])


@asynccontextmanager
async def open_door(address: str, system: System) -> AsyncIterator[Door]:
    """A door at an address, for as long as the block lasts."""
    async with aio.insecure_channel(address, options=CHANNEL) as channel:
        yield Door(channel, system.metadata)


@asynccontextmanager
async def any_gateway(system: System) -> AsyncIterator[Door]:
    """A way in by whichever gateway says that it serves."""
    target = "ipv4:" + ",".join(gateway.address for gateway in system.gateways)
    options = [*CHANNEL, ("grpc.service_config", _BALANCED)]
    async with aio.insecure_channel(target, options=options) as channel:
        yield Door(channel, system.metadata)


@asynccontextmanager
async def open_clients(system: System) -> AsyncIterator[Clients]:
    """Users that come in through any of the gateways."""
    async with AsyncExitStack() as stack:
        yield Clients(
            [
                await stack.enter_async_context(open_door(gateway.address, system))
                for gateway in system.gateways
            ]
        )


async def persistently(call: Callable[[], Awaitable[T]], *, patience: float = ENOUGH) -> T:
    """What a call gives, which is repeated for as long as the system is out of order."""
    until = asyncio.get_running_loop().time() + patience
    while True:
        try:
            return await call()
        except aio.AioRpcError as error:
            if error.code() not in _UNDECIDED or asyncio.get_running_loop().time() > until:
                raise
        await asyncio.sleep(_PAUSE_SECONDS)
