"""The bus over NATS: plain publish and subscribe, nothing stored, on one connection.

A key belongs to one of 1,024 buckets, and each bucket has a subject. A process subscribes to those
in which it has waiters: hearing them all would cost each of many processes the same as hearing for
all of them.
"""

import asyncio
import zlib
from collections import defaultdict
from collections.abc import Collection
from functools import partial

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from services.common.bus.keeping import keep_session
from services.common.bus.nats_session import ANSWER_TIMEOUT, open_client
from services.common.bus.outbox import Outbox, keys_of, payloads
from services.common.bus.waiters import Waiters
from services.common.tasks import task_group

BUCKETS = 1024
"""How many subjects the keys of a channel are spread over; all processes must agree on it."""

_SETTLE = 0.01


def subject(channel: str, key: str) -> str:
    """The subject on which hints at `key` are published."""
    return f"chatmind.{channel}.{zlib.crc32(key.encode()) % BUCKETS}"


async def carry(
    url: str, channel: str, waiters: Waiters, outbox: Outbox, *, application_name: str
) -> None:
    """Carry hints on a channel until cancelled; connects, and reconnects, by itself.

    Args:
        url: see `open_client`.
        channel: what all processes that are to hear one another name alike.
        waiters: who waits here for what others send.
        outbox: what this process has to send.
        application_name: shown in the server's monitoring.
    """

    async def use(client: Client) -> None:
        async with task_group() as group:
            group.create_task(_hear(channel, waiters, client))
            group.create_task(_send(channel, outbox, client))

    await keep_session(f"nats {channel}", partial(open_client, url, name=application_name), use)


async def _hear(channel: str, waiters: Waiters, client: Client) -> None:
    interest = _Interest(channel, waiters, client)
    await interest.follow()
    with waiters.hearing():
        while True:
            await waiters.keys_changed.wait()
            new = await interest.follow()
            # Their waiters may have read the rows before anything could be heard.
            waiters.pass_on([key for key in waiters.keys if subject(channel, key) in new])
            await asyncio.sleep(_SETTLE)


class _Interest:
    """The subscriptions of one connection: to the subjects of the keys that somebody waits for."""

    def __init__(self, channel: str, waiters: Waiters, client: Client) -> None:
        self._channel = channel
        self._waiters = waiters
        self._client = client
        self._held: dict[str, Subscription] = {}

    async def follow(self) -> Collection[str]:
        """Begin and end subscriptions as need be; returns the new subjects, heard from now on."""
        self._waiters.keys_changed.clear()
        wanted = {subject(self._channel, key) for key in self._waiters.keys}
        for each in self._held.keys() - wanted:
            await self._held.pop(each).unsubscribe()
        new = wanted - self._held.keys()
        for each in new:
            self._held[each] = await self._client.subscribe(each, cb=self._pass_on)
        if new:
            await self._client.rtt(timeout=ANSWER_TIMEOUT)
        return new

    async def _pass_on(self, message: Msg) -> None:
        self._waiters.pass_on(keys_of(message.data.decode(errors="replace")))


async def _send(channel: str, outbox: Outbox, client: Client) -> None:
    async def send(keys: Collection[str]) -> None:
        by_subject: defaultdict[str, list[str]] = defaultdict(list)
        for key in keys:
            by_subject[subject(channel, key)].append(key)
        for each, its_keys in by_subject.items():
            for message in payloads(its_keys, max_bytes=client.max_payload):
                await client.publish(each, message.encode())
        await client.rtt(timeout=ANSWER_TIMEOUT)

    await outbox.empty(send)
