"""A worker that was frozen past its lease comes back with a write in hand."""

import asyncio
import signal

import pytest

from tests.chaos import evidence, mutations
from tests.chaos.agent import FENCED, LANDED
from tests.chaos.checker import Violation, violations
from tests.chaos.clients import Clients
from tests.chaos.system import ENOUGH, System, until

pytestmark = pytest.mark.asyncio(loop_scope="session")

WRITES = ("reply", "announce", "result", "finish")


async def thaw_too_late(
    system: System, clients: Clients, write: str, **environment: str
) -> list[Violation]:
    """Freeze a worker before a write until another one has its run; gives what is broken."""
    await clients.submit(await clients.open_session(), f"{write} pay")
    first, second = system.workers[:2]
    late = await first.start_armed(f"{write}.before=stop@1", **environment)
    async with asyncio.timeout(ENOUGH):
        await late.frozen.wait()
        system.model.gate.clear()
        before = system.model.asked.total()
        await second.start()
        await until(lambda: asked_again(system, before))
        late.send(signal.SIGCONT)
        await until(lambda: written(system))
        system.model.gate.set()
        assert await evidence.all_ended(system)
    return violations(await evidence.history(system, clients.submits))


async def asked_again(system: System, before: int) -> bool:
    """Whether the other worker has come to where it asks the model, which does not answer yet."""
    return system.model.asked.total() > before


async def written(system: System) -> bool:
    """Whether it is known what became of the late write."""
    return bool(system.logged(FENCED) or system.logged(LANDED))


@pytest.mark.parametrize("write", WRITES)
async def test_a_late_write_is_refused(system: System, clients: Clients, write: str) -> None:
    """T-D3: SIGSTOP past the lease, then SIGCONT."""
    assert await thaw_too_late(system, clients, write) == []
    assert len(system.logged(FENCED)) == 1


async def test_without_the_fence_the_suite_goes_red(system: System, clients: Clients) -> None:
    """Where the epoch is not checked, a step that was recorded twice is found."""
    found = await thaw_too_late(system, clients, "reply", **{mutations.VARIABLE: "fence"})

    assert len(system.logged(LANDED)) == 1
    assert {"I5", "D3"} == {violation.invariant for violation in found}
