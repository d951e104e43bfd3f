"""The bus over PostgreSQL: LISTEN and NOTIFY, on a connection each.

Both need a session of their own, so they go past any pooler: through one in transaction mode LISTEN
is accepted and nothing is ever heard.
"""

import asyncio
from collections.abc import Collection
from functools import partial
from typing import NoReturn

from services.common.bus.keeping import keep_session, watched_by
from services.common.bus.outbox import Outbox, keys_of, payloads
from services.common.bus.waiters import Waiters
from services.common.db_errors import unreachable
from services.common.session import Connection, open_connection
from services.common.tasks import task_group

_MAX_PAYLOAD_BYTES = 7999
_CHECK = 10.0
_ANSWER_TIMEOUT = 5.0
_NOTIFY = "SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload"


async def carry(
    dsn: str, channel: str, waiters: Waiters, outbox: Outbox, *, application_name: str
) -> None:
    """Carry hints on a channel until cancelled; connects, and reconnects, by itself.

    Args:
        dsn: a direct address of the database, not a pooler's.
        channel: what all processes that are to hear one another name alike.
        waiters: who waits here for what others send.
        outbox: what this process has to send.
        application_name: how the server's activity view shows the two connections, with `-listen`
            and `-notify` behind it.

    Raises:
        Exception: why the database refuses us for good.
    """
    listening = partial(open_connection, dsn, application_name=f"{application_name}-listen")
    notifying = partial(
        open_connection,
        dsn,
        application_name=f"{application_name}-notify",
        # A hint that is lost costs a poll, so none need wait for the disk.
        settings={"synchronous_commit": "off"},
    )
    hear, send = partial(_hear, channel, waiters), partial(_send, channel, outbox)
    async with task_group() as group:
        group.create_task(keep_session(f"listen {channel}", listening, hear))
        group.create_task(keep_session(f"notify {channel}", notifying, send))


async def _hear(channel: str, waiters: Waiters, session: Connection) -> None:
    async with watched_by(_fail_when_lost(session)):
        async with asyncio.timeout(_ANSWER_TIMEOUT):
            await session.add_listener(
                channel, lambda *heard: waiters.pass_on(keys_of(str(heard[-1])))
            )
        with waiters.hearing():
            while True:
                await asyncio.sleep(_CHECK)
                await session.fetchval("SELECT 1", timeout=_ANSWER_TIMEOUT)


async def _send(channel: str, outbox: Outbox, session: Connection) -> None:
    async def send(keys: Collection[str]) -> None:
        messages = payloads(keys, max_bytes=_MAX_PAYLOAD_BYTES)
        await session.execute(_NOTIFY, channel, messages, timeout=_ANSWER_TIMEOUT)

    async with watched_by(_fail_when_lost(session)):
        await outbox.empty(send)


async def _fail_when_lost(session: Connection) -> NoReturn:
    lost = asyncio.Event()
    session.add_termination_listener(lambda _: lost.set())
    if not session.is_closed():  # nobody is told of what happened before
        await lost.wait()
    raise unreachable() from ConnectionResetError("the server hung up")
