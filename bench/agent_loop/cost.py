"""Processor time of a step, conversations at once, and memory of each."""

import os
import statistics
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from bench.agent_loop.goals import tell_goals
from bench.agent_loop.processes import CONTENDERS, contender, model_server
from bench.conversation import STEPS

ALONE, MANY = 40, 200
"""How many conversations a turn has, one by one and all at once."""

CROWDS = (50, 100, 200, 500, 1000, 2000)
STRETCH = 1.25
_HOPELESS = 2.0
_HELD = 200


async def measure_cost(*, names: Sequence[str], rounds: int) -> None:
    """Microseconds of processor time that a step costs; the first round warms up."""
    spent: dict[tuple[str, int], list[float]] = {}
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(model_server())
        processes = {
            name: await stack.enter_async_context(contender(name, server, milliseconds=0))
            for name in names
        }
        print("; ".join(", ".join(each.hello["versions"]) for each in processes.values()))
        for at in range(rounds + 1):
            for count, at_once in ((ALONE, 1), (MANY, MANY)):
                for name, each in processes.items():
                    took = await each.do(conversations=count, at_once=at_once, watch=False)
                    if at:
                        cost = 1e6 * took["cpu"] / (count * STEPS)
                        spent.setdefault((name, at_once), []).append(cost)
            print(f"round {at} of {rounds}, load {os.getloadavg()[0]:.2f}", flush=True)
    _tell_cost({key: statistics.median(values) for key, values in spent.items()}, names)


def _tell_cost(spent: Mapping[tuple[str, int], float], names: Sequence[str]) -> None:
    reference = "langgraph" if "langgraph" in names else names[-1]
    print(f"\n{'µs of a step':<22} {'1 at a time':>12} {'share':>6} {f'{MANY} at once':>12} share")
    for name in names:
        one, many = spent[name, 1], spent[name, MANY]
        shares = one / spent[reference, 1], many / spent[reference, MANY]
        print(
            f"{CONTENDERS[name]:<22} {one:>12,.0f} {shares[0]:>6.3f} {many:>12,.0f} {shares[1]:.3f}"
        )
    places, rows = ("one at a time", f"{MANY} at once"), list[tuple[str, str, str]]()
    if {"chatmind", "langgraph"} <= set(names):
        for which, at_once, goal in zip(places, (1, MANY), ("<= .12", "<= .08"), strict=True):
            share = spent["chatmind", at_once] / spent["langgraph", at_once]
            rows.append((f"{which}, of LangGraph's", f"{share:.3f}", goal))
    if {"chatmind", "aiohttp"} <= set(names):
        ours, floor = (
            [spent[name, at_once] for at_once in (1, MANY)] for name in ("chatmind", "aiohttp")
        )
        for which, us, least in zip(places, ours, floor, strict=True):
            rows.append((f"{which}, of the loop by hand on aiohttp", f"{us / least:.2f}", "<= 2"))
    tell_goals("G1", rows)


async def measure_crowd(*, names: Sequence[str], rounds: int) -> None:
    """How many conversations one core holds at once before they take a quarter longer."""
    most: dict[str, list[float]] = {name: [] for name in names}
    async with model_server() as server:
        for at in range(rounds):
            for name in names:
                stretches = await _stretches(name, server)
                most[name].append(_most(stretches))
                told = ", ".join(f"{crowd} {stretch:.2f}" for crowd, stretch in stretches)
                print(f"{CONTENDERS[name]:<22} {told}", flush=True)
            print(f"round {at + 1} of {rounds}, load {os.getloadavg()[0]:.2f}", flush=True)
    print(f"\nat a stretch of {STRETCH}, where a model takes 1 s:")
    for name in names:
        print(f"{CONTENDERS[name]:<22} {statistics.median(most[name]):>6,.0f}")
    if {"chatmind", "langgraph"} <= set(names):
        ratio = statistics.median(most["chatmind"]) / statistics.median(most["langgraph"])
        tell_goals("G3", [("conversations of a core, of LangGraph's", f"{ratio:.1f}", ">= 6")])


async def _stretches(name: str, server: str) -> list[tuple[int, float]]:
    """The time of crowds of growing size as multiples of what the model alone takes."""
    found: list[tuple[int, float]] = []
    async with contender(name, server, milliseconds=1000) as process:
        for crowd in CROWDS:
            took = await process.do(conversations=crowd, at_once=crowd, watch=False)
            found.append((crowd, took["wall"] / STEPS))
            if found[-1][1] > _HOPELESS:
                break
    return found


def _most(stretches: Sequence[tuple[int, float]]) -> float:
    """Where the line through the measured points crosses the bound; the last one if it does not."""
    crowd, stretch = 0, 1.0
    for next_crowd, next_stretch in stretches:
        if next_stretch > STRETCH:
            return crowd + (next_crowd - crowd) * (STRETCH - stretch) / (next_stretch - stretch)
        crowd, stretch = next_crowd, next_stretch
    return crowd


async def measure_memory(*, names: Sequence[str], rounds: int, conversations: int) -> None:
    """Memory of a conversation that is going on, and what is left of many that have ended."""
    held: dict[str, list[float]] = {name: [] for name in names}
    async with model_server() as server:
        for at in range(rounds):
            for name in names:
                async with contender(name, server, milliseconds=1000) as process:
                    took = await process.do(conversations=_HELD, at_once=_HELD, watch=True)
                held[name].append((took["peak"] - took["before"]) / _HELD / 1024)
            print(f"round {at + 1} of {rounds}, load {os.getloadavg()[0]:.2f}", flush=True)
        # The others would take minutes each, and no goal asks what they leave behind.
        left = await _left("chatmind", server, conversations) if "chatmind" in names else None
    _tell_held(held)
    if left is not None:
        _tell_left(left, held, conversations)


async def _left(name: str, server: str, conversations: int) -> Mapping[str, Any]:
    """What resident memory grows by after a first tenth of them, by when all pools are full."""
    async with contender(name, server, milliseconds=0) as process:
        first = await process.do(conversations=conversations // 10, at_once=_HELD, watch=False)
        last = await process.do(conversations=conversations, at_once=_HELD, watch=False)
    return {"idle": first["before"], "grown": last["after"] - first["after"]}


def _tell_held(held: Mapping[str, Sequence[float]]) -> None:
    print(f"\n{'KiB of one that goes on':<24}")
    for name, values in held.items():
        print(f"{CONTENDERS[name]:<24} {statistics.median(values):>8.1f}")


def _tell_left(
    left: Mapping[str, Any], held: Mapping[str, Sequence[float]], conversations: int
) -> None:
    each = left["grown"] / conversations
    rows = [(f"bytes that each of {conversations:,} leaves behind", f"{each:.0f}", "none")]
    if "langgraph" in held:
        ratio = statistics.median(held["chatmind"]) / statistics.median(held["langgraph"])
        rows.insert(0, ("memory of one that goes on, of LangGraph's", f"{ratio:.2f}", "<= .5"))
    print(f"idle, ChatMind's process takes {left['idle'] / 1024 / 1024:.0f} MiB")
    tell_goals("G4", rows)
