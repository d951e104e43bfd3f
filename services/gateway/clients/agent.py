"""Client of the agent service, for conversations."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from chatmind.agent.v1 import (
    agent_service_pb2,
    agent_service_pb2_grpc,
    run_service_pb2,
    run_service_pb2_grpc,
    session_pb2,
)
from grpc import aio

from services.common.backoff import jittered
from services.common.channel import OutgoingCalls
from services.common.errors import FieldViolation, InvalidArgumentError
from services.common.identity import Identity
from services.common.interceptors.deadline import time_left
from services.gateway.clients import convert
from services.gateway.clients.failures import translated
from services.gateway.domain.errors import ServiceUnavailableError
from services.gateway.domain.messages import Accepted, NewMessage, RunUpdate
from services.gateway.domain.models import AgentId, RunId, SessionId

_SERVICE = "agent"
_PAUSES = (0.1, 0.3)

ResponseT = TypeVar("ResponseT")


class AgentClient:
    """The port `Agents` over a channel."""

    def __init__(self, channel: aio.Channel, calls: OutgoingCalls) -> None:
        self._agents = agent_service_pb2_grpc.AgentServiceStub(channel)
        self._runs = run_service_pb2_grpc.RunServiceStub(channel)
        self._calls = calls

    async def open_session(
        self, identity: Identity, agent_id: AgentId, *, request_id: str
    ) -> SessionId:
        """See the port."""
        request = agent_service_pb2.CreateSessionRequest(
            session=session_pb2.Session(agent_id=agent_id), request_id=request_id
        )
        try:
            response = await _retried(
                lambda left: self._agents.CreateSession(
                    request, timeout=left, metadata=self._calls.metadata(identity)
                )
            )
        except InvalidArgumentError as error:
            raise _with_our_fields(error) from error
        return SessionId(response.session.id)

    async def start_run(
        self, identity: Identity, session_id: SessionId, message: NewMessage
    ) -> Accepted:
        """See the port."""
        request = run_service_pb2.StartRunRequest(
            session_id=session_id,
            text=message.text,
            request_id=message.request_id,
            when_busy=convert.from_when_busy(message.when_busy),
        )
        response = await _retried(
            lambda left: self._runs.StartRun(
                request, timeout=left, metadata=self._calls.metadata(identity)
            )
        )
        return convert.to_accepted(response)

    async def cancel_run(self, identity: Identity, run_id: RunId) -> RunUpdate:
        """See the port."""
        request = run_service_pb2.CancelRunRequest(run_id=run_id)
        response = await _retried(
            lambda left: self._runs.CancelRun(
                request, timeout=left, metadata=self._calls.metadata(identity)
            )
        )
        return convert.to_run_update(response.run)

    async def last_sequence(self, identity: Identity, session_id: SessionId) -> int:
        """See the port."""
        request = agent_service_pb2.GetSessionRequest(session_id=session_id)
        response = await _retried(
            lambda left: self._agents.GetSession(
                request, timeout=left, metadata=self._calls.metadata(identity)
            )
        )
        return response.session.last_sequence


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except aio.AioRpcError as error:
        raise translated(error, service=_SERVICE) from error


async def _retried(call: Callable[[float], Awaitable[ResponseT]]) -> ResponseT:
    """The answer to an idempotent call, which is retried when the connection breaks.

    Args:
        call: makes the call, given the seconds that are left for it.
    """
    now = asyncio.get_running_loop().time
    until = now() + time_left()
    for pause in _PAUSES:
        try:
            with _translated():
                return await call(until - now())
        except ServiceUnavailableError:
            if now() + 2 * pause >= until:
                raise
            await asyncio.sleep(jittered(pause))
    with _translated():
        return await call(until - now())


def _with_our_fields(error: InvalidArgumentError) -> InvalidArgumentError:
    """The error with field paths as in our own contract, where `agent_id` is not in a session."""
    return InvalidArgumentError(
        error.message.removeprefix("session."),
        metadata=error.metadata,
        violations=[
            FieldViolation(each.field.removeprefix("session."), each.description)
            for each in error.violations
        ],
    )
