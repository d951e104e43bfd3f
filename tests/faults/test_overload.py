"""T-S11: a gateway with ten times the calls that it may take at once."""

import asyncio
import statistics
import time
from pathlib import Path
from typing import Any

import grpc
from chatmind.gateway.v1 import access_service_pb2, gateway_service_pb2
from grpc import aio
from grpc_health.v1 import health_pb2

from services.common.status import RpcFailure, failure_of
from tests.calls import health_of, unary_unary
from tests.gateway.installation import ADMIN, Installation, bearer, eventually, open_installation

MOST = 10
SOON = 0.05
TAKES = 0.2
"""Seconds that a call takes, of which more than ten at once are not taken."""

SEARCH = "/chatmind.knowledge.v1.KnowledgeService/Search"


def search(gateway: Installation) -> Any:
    """A call of the service behind the gateway."""
    return unary_unary(gateway.channel, SEARCH)(b"hi", metadata=bearer(gateway.key), timeout=20)


async def outcome(gateway: Installation) -> tuple[RpcFailure | None, float]:
    """How a call fails, if it does, and after how many seconds."""
    began = time.monotonic()
    try:
        await search(gateway)
    except aio.AioRpcError as error:
        return failure_of(error), time.monotonic() - began
    return None, time.monotonic() - began


async def test_what_is_too_much_is_refused_at_once_and_the_rest_is_served(
    tmp_path: Path, keys_database: str
) -> None:
    """Calls that are held fill the limit; nothing else suffers, health and streams included."""
    async with open_installation(tmp_path, keys_database, max_calls=MOST) as gateway:
        gateway.knowledge.hold = asyncio.Event()
        taken = [asyncio.ensure_future(search(gateway)) for _ in range(MOST)]
        await eventually(lambda: len(gateway.knowledge.calls) == MOST)

        refused = [await outcome(gateway) for _ in range(9 * MOST)]
        health = await health_of(gateway.channel).Check(health_pb2.HealthCheckRequest())
        session = gateway.agent.open(ADMIN)
        await session.commit("hello")
        stream = gateway.messages.StreamMessages(
            gateway_service_pb2.StreamMessagesRequest(session_id=session.id, after_sequence=0),
            metadata=bearer(gateway.key),
        )
        first = await stream.read()
        stream.cancel()
        gateway.knowledge.hold.set()
        served = await asyncio.gather(*taken)
        later = await gateway.access.GetIdentity(
            access_service_pb2.GetIdentityRequest(), metadata=bearer(gateway.key)
        )

    failures = [failure for failure, _ in refused if failure is not None]
    assert len(failures) == len(refused)
    assert {failure.code for failure in failures} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert all(failure.retry_after for failure in failures)
    assert statistics.median(seconds for _, seconds in refused) < SOON
    assert health.status == health_pb2.HealthCheckResponse.SERVING
    assert first.message.sequence == 1
    assert served == [b"hi"] * MOST
    assert later.api_key.user_id == ADMIN.user_id


async def test_under_a_flood_what_is_served_is_served_in_time(
    tmp_path: Path, keys_database: str
) -> None:
    """Ten times as many callers as there may be calls: each is served or refused, none waits."""
    async with open_installation(tmp_path, keys_database, max_calls=MOST) as gateway:
        gateway.knowledge.seconds = TAKES
        outcomes: list[tuple[RpcFailure | None, float]] = []

        async def call_again_and_again() -> None:
            for _ in range(5):
                outcomes.append(await outcome(gateway))

        await asyncio.gather(*(call_again_and_again() for _ in range(10 * MOST)))
        at_rest = await search(gateway)

    served = [seconds for failure, seconds in outcomes if failure is None]
    codes = {failure.code for failure, _ in outcomes if failure is not None}
    assert codes == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert len(served) >= MOST
    assert max(served) < 10 * TAKES
    assert at_rest == b"hi"
