"""Measures contenders in turns and tells their medians."""

import gc
import os
import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Protocol

import psutil


class Contender(Protocol):
    """Somebody who does a piece of work in his own way.

    Attributes:
        name: what the table calls it.
    """

    name: str

    async def prepare(self) -> None:
        """Lay out the work; not measured."""

    async def work(self) -> int:
        """Do it; gives how many units it had."""


@dataclass(slots=True)
class Score:
    """What was measured of a contender.

    Attributes:
        rates: units per second, a value per round.
        own: microseconds of this process's time per unit, likewise.
        server: microseconds of the database server's time per unit, likewise.
    """

    rates: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    server: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """The median rate."""
        return statistics.median(self.rates)


async def contest(
    contenders: Sequence[Contender], *, rounds: int, server: psutil.Process
) -> dict[str, Score]:
    """Let all work in turns; the first round warms up and does not count.

    What they have all imported is none of the garbage collector's business: as in a service, which
    has imported less, no collection walks over it.
    """
    gc.collect()
    gc.freeze()
    scores = {contender.name: Score() for contender in contenders}
    for at in range(rounds + 1):
        for contender in contenders:
            await contender.prepare()
            began, own, theirs = time.perf_counter(), time.process_time(), _spent(server)
            units = await contender.work()
            score = scores[contender.name] if at else Score()
            score.rates.append(units / (time.perf_counter() - began))
            score.own.append(1e6 * (time.process_time() - own) / units)
            score.server.append(1e6 * (_spent(server) - theirs) / units)
        print(f"round {at} of {rounds}, load {os.getloadavg()[0]:.2f}", flush=True)
    return scores


def _spent(server: psutil.Process) -> float:
    """Seconds of processor time of a server with all its sessions, those that ended included."""
    total = 0.0
    for process in [server, *server.children()]:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    ended = server.cpu_times()
    return total + ended.children_user + ended.children_system


def table(scores: dict[str, Score], *, unit: str, reference: str) -> str:
    """The medians, with the rates as shares of one of them."""
    whole = scores[reference].rate
    head = f"{'':<30} {unit + '/s':>10} {'share':>7} {'least':>9} {'most':>9}"
    lines = [f"{head} {'own µs':>8} {'server µs':>9}"]
    lines += [
        f"{name:<30} {score.rate:>10,.0f} {score.rate / whole:>7.2f} {min(score.rates):>9,.0f} "
        f"{max(score.rates):>9,.0f} {statistics.median(score.own):>8,.0f} "
        f"{statistics.median(score.server):>9,.0f}"
        for name, score in scores.items()
    ]
    return "\n".join(lines)


def versions(*packages: str) -> str:
    """What is compared, in a line."""
    return ", ".join(f"{package} {version(package)}" for package in packages)
