"""Watches of many sessions over few calls to the agent service.

A call for every client would cost each client as much again as its own stream does. So the watches
are spread over a fixed number of calls, the lanes, which the channel in turn spreads over the
agent service's replicas. Whatever ends a call, its watches go on in the next one.
"""

from grpc import aio

from services.common.channel import OutgoingCalls
from services.common.tasks import task_group
from services.gateway.clients.watch_lane import Lane, Pace
from services.gateway.domain.ports import Watched

# Each reads for itself what comes at one time, so more of them make every message dearer
# (`bench/stream`); with two, no replica that stops interrupts all watches.
_LANES = 2


class SessionWatches:
    """The port `Watches` over a channel; `run` has to run beside it."""

    def __init__(self, channel: aio.Channel, calls: OutgoingCalls, *, pace: Pace) -> None:
        self._lanes = [Lane(channel, calls, pace=pace) for _ in range(_LANES)]

    async def run(self) -> None:
        """Keep the calls open for as long as there are watches, until cancelled."""
        async with task_group() as group:
            for lane in self._lanes:
                group.create_task(lane.run())

    def begin(self, watched: Watched) -> None:
        """See the port."""
        self._lane(watched).begin(watched)

    def end(self, watched: Watched) -> None:
        """See the port."""
        self._lane(watched).end(watched)

    def _lane(self, watched: Watched) -> Lane:
        # The agent service reads a session once for all of its watches in one call.
        return self._lanes[hash(watched.session_id) % _LANES]
