"""The status of ChatMind, for operators and load balancers; it says nothing about tenants."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from services.common.clock import Clock
from services.gateway.domain.ports import Probe

_TIMEOUT = 3.0


@dataclass(frozen=True, slots=True)
class Status:
    """The status as of a moment ago.

    Attributes:
        components: what the gateway depends on, and whether each works.
        draining: whether this gateway is about to stop.
        start_time: when this gateway started.
        open_calls: how many calls of each kind are running.
    """

    components: Mapping[str, bool]
    draining: bool
    start_time: datetime
    open_calls: Mapping[str, int]

    @property
    def ready(self) -> bool:
        """Whether this gateway should get calls."""
        return not self.draining and all(self.components.values())


class StatusBoard:
    """Checks what the gateway depends on, at most once per `hold_seconds`."""

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
        self._checking = asyncio.Lock()
        self._checked = float("-inf")
        self._components: Mapping[str, bool] = {}

    def drain(self) -> None:
        """Report from now on that this gateway is about to stop."""
        self._draining = True

    async def status(self) -> Status:
        """The status, at most `hold_seconds` old."""
        now = asyncio.get_running_loop().time
        async with self._checking:
            if now() - self._checked >= self._hold_seconds:
                self._components = await self._check_all()
                self._checked = now()
        return Status(self._components, self._draining, self._start_time, self._open_calls())

    async def _check_all(self) -> Mapping[str, bool]:
        async with asyncio.TaskGroup() as group:
            checks = {
                name: group.create_task(_works(probe)) for name, probe in self._probes.items()
            }
        return {name: check.result() for name, check in checks.items()}


async def _works(probe: Probe) -> bool:
    try:
        async with asyncio.timeout(_TIMEOUT):
            await probe.check()
    except Exception:  # noqa: BLE001 - whatever is wrong with it, it does not work
        return False
    return True
