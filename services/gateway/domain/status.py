"""How ChatMind is, for operators and load balancers; nothing here says anything of a tenant."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from services.common.clock import Clock
from services.gateway.domain.ports import Probe

_TIMEOUT = 3.0


@dataclass(frozen=True, slots=True)
class Status:
    """How ChatMind was a moment ago.

    Attributes:
        components: what the gateway depends on, and whether each is well.
        draining: whether this gateway is about to stop.
        start_time: when this gateway started.
        open_calls: how many calls of each kind go on.
    """

    components: Mapping[str, bool]
    draining: bool
    start_time: datetime
    open_calls: Mapping[str, int]

    @property
    def ready(self) -> bool:
        """Whether calls had better be sent here."""
        return not self.draining and all(self.components.values())


class StatusBoard:
    """Asks what the gateway depends on, at most once a while however often it is asked itself."""

    def __init__(
        self,
        probes: Mapping[str, Probe],
        *,
        open_calls: Callable[[], Mapping[str, int]],
        hold_seconds: float,
        clock: Clock,
    ) -> None:
        self._draining = False
        self._probes = probes
        self._open_calls = open_calls
        self._hold_seconds = hold_seconds
        self._start_time = clock()
        self._asking = asyncio.Lock()
        self._asked = float("-inf")
        self._components: Mapping[str, bool] = {}

    def drain(self) -> None:
        """From now on, say that this gateway is about to stop."""
        self._draining = True

    async def status(self) -> Status:
        """How ChatMind is now, or was a moment ago."""
        now = asyncio.get_running_loop().time
        async with self._asking:
            if now() - self._asked >= self._hold_seconds:
                self._components = await self._ask_all()
                self._asked = now()
        return Status(self._components, self._draining, self._start_time, self._open_calls())

    async def _ask_all(self) -> Mapping[str, bool]:
        async with asyncio.TaskGroup() as group:
            asked = {
                name: group.create_task(_is_well(probe)) for name, probe in self._probes.items()
            }
        return {name: task.result() for name, task in asked.items()}


async def _is_well(probe: Probe) -> bool:
    try:
        async with asyncio.timeout(_TIMEOUT):
            await probe.check()
    except Exception:  # noqa: BLE001 - whatever is wrong with it, it is not well
        return False
    return True
