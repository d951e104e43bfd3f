"""Users at work while everything breaks, held to every promise once it has healed.

The short form is part of every test run; `make chaos` runs the long one.
"""

import os
import secrets
from pathlib import Path

import pytest

from tests.chaos.campaign import Plan, carry_out
from tests.chaos.figures import table
from tests.chaos.nemesis import Pace
from tests.chaos.system import Size

SCRIPT = "look+pay pay look look+pay"
SHORT = Plan(
    Size(workers=4, gateways=2, runs_at_once=4, tool_seconds=0.15),
    sessions=20,
    runs=5,
    script=SCRIPT,
    subscribers=5,
    pace=Pace(kills=20, freezes=6, postgres=1, replicas=2, cuts=4, seconds=14),
    least={
        "runs": 90,
        "kills": 20,
        "crashes": 20,
        "freezes": 6,
        "postgres_kills": 1,
        "fewest_cuts": 4,
        "tool_calls": 400,
        "samples": 30,
    },
)
LONG = Plan(
    Size(workers=6, gateways=2, runs_at_once=4, tool_seconds=0.15),
    sessions=100,
    runs=10,
    script=SCRIPT,
    subscribers=50,
    pace=Pace(kills=270, freezes=85, postgres=18, replicas=20, cuts=21, seconds=190),
    least={
        "runs": 1000,
        "kills": 300,
        "crashes": 300,
        "freezes": 100,
        "fenced": 10,
        "replica_kills": 15,
        "postgres_kills": 15,
        "subscribers": 50,
        "fewest_cuts": 20,
        "tool_calls": 5000,
        "refused": 10,
        "cancelled": 10,
        "interrupted": 30,
        "samples": 500,
    },
)
PLAN = LONG if os.environ.get("CHATMIND_CHAOS") == "long" else SHORT


@pytest.mark.timeout(20 * PLAN.pace.seconds)
async def test_nothing_is_lost_and_nothing_is_doubled(tmp_path: Path) -> None:
    """T-D2, T-D3, T-D4, T-S1: kills, freezes, a database that dies, connections that are cut."""
    seed = secrets.randbelow(1_000_000)

    result = await carry_out(PLAN, tmp_path, seed=seed)

    print(f"\n{table(result.figures)}\n    {'seed':<18} {seed:>10}")  # noqa: T201
    assert result.violations == [], "\n".join(map(str, result.violations))
