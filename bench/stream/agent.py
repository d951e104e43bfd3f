"""An agent service that only tells watches of messages, as fast as it is bid."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from chatmind.agent.v1 import run_service_pb2 as pb
from chatmind.agent.v1 import run_service_pb2_grpc, session_pb2
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio

from bench.stream.servers import stamped_text
from cli.local.ports import free_ports
from services.common.ids import new_id
from tests.servicers import incomplete


class StandIn(run_service_pb2_grpc.RunServiceServicer):
    """Knows every session, and no database.

    Attributes:
        address: where it is called.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._watches: defaultdict[str, dict[tuple[Any, int], None]] = defaultdict(dict)
        self._sequences: dict[str, int] = {}
        self._message_id, self._run_id = new_id(), new_id()

    async def WatchSessions(  # type: ignore[override]  # noqa: N802 - a coroutine that writes
        self, requests: AsyncIterator[pb.WatchSessionsRequest], context: Any
    ) -> None:
        """Begin and end watches; each is at the end of its session at once."""
        begun: dict[int, str] = {}
        await context.send_initial_metadata(())
        try:
            async for request in requests:
                for watch in request.watches:
                    begun[watch.watch_id] = watch.session_id
                    self._sequences.setdefault(watch.session_id, watch.after_sequence)
                    self._watches[watch.session_id][context, watch.watch_id] = None
                for watch_id in request.unwatch_ids:
                    del self._watches[begun.pop(watch_id)][context, watch_id]
                events = [
                    pb.WatchedEvent(watch_ids=[watch.watch_id], heartbeat=pb.Heartbeat())
                    for watch in request.watches
                ]
                await context.write(pb.WatchSessionsResponse(events=events))
        finally:
            for watch_id, session_id in begun.items():
                del self._watches[session_id][context, watch_id]

    async def watched(self, count: int) -> None:
        """Wait until there are so many watches."""
        async with asyncio.timeout(60):
            while sum(map(len, self._watches.values())) < count:  # noqa: ASYNC110 - no event a watch
                await asyncio.sleep(0.01)

    async def publish(self, session_ids: Sequence[str]) -> None:
        """Tell all who watch these sessions of one more message in each; one response a call."""
        responses: defaultdict[Any, pb.WatchSessionsResponse] = defaultdict(
            pb.WatchSessionsResponse
        )
        for session_id in session_ids:
            message = self._next_message(session_id)
            for context, watch_id in self._watches[session_id]:
                responses[context].events.add(
                    watch_ids=[watch_id], through_sequence=message.sequence, message=message
                )
        for context, response in responses.items():
            await context.write(response)

    def _next_message(self, session_id: str) -> session_pb2.Message:
        self._sequences[session_id] += 1
        return session_pb2.Message(
            id=self._message_id,
            session_id=session_id,
            run_id=self._run_id,
            sequence=self._sequences[session_id],
            role=session_pb2.Message.ROLE_ASSISTANT,
            text=stamped_text(),
        )


@asynccontextmanager
async def stand_in() -> AsyncIterator[StandIn]:
    """One that is called by whoever knows its address, for as long as the block lasts."""
    agent = incomplete(StandIn)(f"127.0.0.1:{next(free_ports())}")
    server = aio.server()
    run_service_pb2_grpc.add_RunServiceServicer_to_server(agent, server)
    health = health_aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    await health.set("", health_pb2.HealthCheckResponse.SERVING)
    server.add_insecure_port(agent.address)
    await server.start()
    try:
        yield agent
    finally:
        await server.stop(0)
