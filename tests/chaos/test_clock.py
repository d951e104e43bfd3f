"""Workers whose clocks are wrong: leases and limits are measured by the database's clock alone."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.chaos import evidence
from tests.chaos.checker import violations
from tests.chaos.clients import Clients
from tests.chaos.processes import ROOT
from tests.chaos.system import AGENT, System, until
from tests.chaos.tools import TOOL_SECONDS


def library() -> Path | None:
    """What shifts a process's clock when it is loaded into it; None where there is none."""
    spec = find_spec("libfaketime")
    folders = spec.submodule_search_locations if spec else None
    return next((each for folder in folders or () for each in Path(folder).rglob(_FILE)), None)


_FILE = "libfaketime.so*"
LIBRARY = library()

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(LIBRARY is None, reason="there is no libfaketime for this platform"),
]

AHEAD, BEHIND = "+1h", "-1h"
RUNS = 6
LEASE = {"CHATMIND_AGENT_LEASE_SECONDS": "3"}
# Longer than a lease, so that each run outlives several of them: it takes two steps.
SLOW = {TOOL_SECONDS: "3.5", **LEASE}
LONG_LEASE = {"CHATMIND_AGENT_LEASE_SECONDS": "60"}


@asynccontextmanager
async def worker(
    system: System, shift: str, **more: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A worker whose wall clock is wrong; the monotonic one is right, as it is in real life."""
    environment = {
        **system.workers[0].environment,
        **more,
        "PYTHONPATH": f"{ROOT}:{ROOT / 'gen'}",
        "LD_PRELOAD": str(LIBRARY),
        "FAKETIME": shift,
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    log = os.open(system.logs / f"worker{shift}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", AGENT), env=environment, cwd=ROOT, stdout=log, stderr=log
        )
    finally:
        os.close(log)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_no_lease_is_stolen_early(system: System, clients: Clients) -> None:
    """T-D7: one worker an hour ahead, one an hour behind, and runs longer than a lease."""
    for number in range(RUNS):
        await clients.submit(await clients.open_session(), f"clock{number} pay")

    async with worker(system, AHEAD, **SLOW), worker(system, BEHIND, **SLOW):
        assert await evidence.all_ended(system)

    history = await evidence.history(system, clients.submits)
    assert [run.crashes for run in history.runs] == [0] * RUNS
    assert [run.stop_reason for run in history.runs] == ["end_turn"] * RUNS
    assert violations(history) == []


@pytest.mark.parametrize("shift", [AHEAD, BEHIND])
async def test_no_lease_is_kept_late(system: System, clients: Clients, shift: str) -> None:
    """T-D7: what a worker with a wrong clock held is taken over once its lease has lapsed."""
    await clients.submit(await clients.open_session(), "late pay")
    system.model.gate.clear()

    async with worker(system, shift, **LEASE) as lost:
        await until(lambda: asked(system))
        lost.send_signal(signal.SIGKILL)
        system.model.gate.set()
        await system.workers[0].start(**LONG_LEASE)
        assert await evidence.all_ended(system)

    history = await evidence.history(system, clients.submits)
    assert [run.crashes for run in history.runs] == [1]
    assert violations(history) == []


async def asked(system: System) -> bool:
    """Whether somebody works on a run."""
    return system.model.asked.total() > 0
