"""Gateways are replaced one after the other while users call, send and follow sessions."""

import asyncio
import os
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from grpc import aio

from services.common.ids import new_id
from services.common.tasks import background_tasks
from tests.chaos import evidence
from tests.chaos.checker import violations
from tests.chaos.clients import Door, any_gateway, follow
from tests.chaos.history import Outcome, Submit, Subscription
from tests.chaos.system import Size, System, open_system

SIZE = Size(workers=2, gateways=3, lease=5.0)
CALLERS, SESSIONS, REPLACED = 8, 30, 20
LEAST_CALLS = 10_000
SEND_EVERY = 0.2
DELIVERED_WITHIN = 30.0
SCRIPT = "look+pay pay"


@dataclass(slots=True)
class Users:
    """What they did, and how it ended.

    Attributes:
        endings: of unary calls, by status.
        submits: messages that were sent, each once: nobody repeats a call that failed.
        subscriptions: what those who follow sessions received.
    """

    endings: Counter[str] = field(default_factory=Counter)
    submits: list[Submit] = field(default_factory=list)
    subscriptions: list[Subscription] = field(default_factory=list)

    async def read(self, door: Door, run_id: str) -> None:
        """Ask for a run, again and again."""
        while True:
            try:
                await door.get_run(run_id)
            except aio.AioRpcError as error:
                self.endings[error.code().name] += 1
            else:
                self.endings["OK"] += 1

    async def send(self, door: Door, session_ids: list[str]) -> None:
        """Send one session after the other a message."""
        for number in count():
            await self.send_one(door, session_ids[number % len(session_ids)], f"r{number} {SCRIPT}")
            await asyncio.sleep(SEND_EVERY)

    async def send_one(self, door: Door, session_id: str, text: str) -> str:
        """Send a message; gives its run."""
        try:
            sent = await door.send(session_id, text, request_id=new_id())
        except aio.AioRpcError as error:
            self.endings[error.code().name] += 1
            self.submits.append(Submit(session_id, text, Outcome.UNKNOWN))
            return ""
        self.endings["OK"] += 1
        self.submits.append(Submit(session_id, text, Outcome.OK, sent.run_id))
        return sent.run_id


async def measure_restart() -> None:
    """Tell how calls ended, and whether all that was committed was delivered once and in order."""
    users = Users()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        system = await stack.enter_async_context(open_system(folder, SIZE))
        door = await stack.enter_async_context(any_gateway(system))
        agent_id = await door.create_agent()
        session_ids = [await door.create_session(agent_id) for _ in range(SESSIONS)]
        for slot in system.workers:
            await slot.start()
        began = time.monotonic()
        async with background_tasks() as following:
            for session_id in session_ids:
                subscription = Subscription(f"follower of {session_id}", session_id)
                users.subscriptions.append(subscription)
                own_door = await stack.enter_async_context(any_gateway(system))
                following.start(subscription.name, follow(own_door, subscription))
            await _replace_under_load(system, users, door, session_ids)
            seconds = time.monotonic() - began
            await evidence.all_ended(system)
            await _delivered(system, users)
            following.cancel()
        history = replace(
            await evidence.history(system, users.submits), subscriptions=users.subscriptions
        )
    found = violations(history)
    delivered = sum(len(each.received) for each in users.subscriptions)
    print(
        f"{REPLACED} replacements of {SIZE.gateways} gateways in {seconds:.0f} s, "
        f"load {os.getloadavg()[0]:.2f}\n"
        f"unary calls: {dict(users.endings)} (goal: 0 failed of {LEAST_CALLS:,})\n"
        f"messages: {len(history.messages)} committed, {delivered} delivered to one follower of "
        f"each session; broken promises: {len(found)}"
    )
    for each in found:
        print(each)


async def _replace_under_load(
    system: System, users: Users, door: Door, session_ids: list[str]
) -> None:
    run_id = await users.send_one(door, session_ids[0], "first")
    async with background_tasks() as calling:
        for number in range(CALLERS):
            calling.start(f"caller {number}", users.read(door, run_id))
        calling.start("sender", users.send(door, session_ids))
        for number in range(REPLACED):
            gateway = system.gateways[number % len(system.gateways)]
            await gateway.running.stop()
            await gateway.start()
            await system.serving(gateway)
        while users.endings.total() < LEAST_CALLS:  # noqa: ASYNC110 - calls are not events
            await asyncio.sleep(0.1)
        calling.cancel()


async def _delivered(system: System, users: Users) -> None:
    """Wait until each follower has as many messages as there are; the checker tells if not."""
    stored = Counter(row.session_id for row in await evidence.messages(system))
    until = time.monotonic() + DELIVERED_WITHIN
    for each in users.subscriptions:
        while (  # noqa: ASYNC110 - deliveries are not events
            each.last < stored[each.session_id] and time.monotonic() < until
        ):
            await asyncio.sleep(0.05)
