"""Opens the bus that the settings ask for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import assert_never

from services.common.bus import nats, postgres
from services.common.bus.outbox import Outbox
from services.common.bus.settings import BusSettings
from services.common.bus.waiters import Waiters
from services.common.hints import Listener, Notifier
from services.common.tasks import background_tasks

_FLUSH_TIMEOUT = 1.0


@dataclass(frozen=True, slots=True)
class Bus:
    """A process's two ends of the bus.

    Attributes:
        listener: hears hints.
        notifier: sends hints.
    """

    listener: Listener
    notifier: Notifier


@asynccontextmanager
async def open_bus(
    settings: BusSettings, channel: str, *, application_name: str
) -> AsyncIterator[Bus]:
    """A bus for as long as the block lasts; it connects, and reconnects, in the background.

    Until it has, and whenever the connection is lost, only the waiters' poll is left. At the end
    what waits to be sent is sent, if that takes no longer than a second.

    Args:
        settings: say which bus it is, and where.
        channel: what all processes that are to hear one another name alike.
        application_name: how the server's view of its connections shows this process.
    """
    waiters, outbox = Waiters(poll=settings.poll_seconds), Outbox()
    async with background_tasks() as tasks:
        tasks.start(f"bus {channel}", _carry(settings, channel, waiters, outbox, application_name))
        try:
            yield Bus(waiters, outbox)
        finally:
            with suppress(TimeoutError):
                await asyncio.wait_for(outbox.flush(), _FLUSH_TIMEOUT)


async def _carry(
    settings: BusSettings, channel: str, waiters: Waiters, outbox: Outbox, name: str
) -> None:
    match settings.bus:
        case "postgres":
            dsn = settings.direct_dsn
            await postgres.carry(dsn, channel, waiters, outbox, application_name=name)
        case "nats":
            url = settings.nats_url.get_secret_value() if settings.nats_url else ""
            await nats.carry(url, channel, waiters, outbox, application_name=name)
        case _:
            assert_never(settings.bus)
