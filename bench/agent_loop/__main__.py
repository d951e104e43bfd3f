"""What a step of an agent costs beside the model.

All hold the same conversation with the same model server, which speaks OpenAI's API from another
process on another core: a question, four calls of one tool, an answer. Contenders: loops by hand on
aiohttp and on the openai package, ChatMind's own loop with its model and a journal in memory,
LangGraph, the OpenAI Agents SDK and Pydantic AI, each in a process of its own.

cost     processor time of a step, one conversation at a time and 200 at once
crowd    how many conversations one core holds at once where the model takes a second
memory   of a conversation that is going on, and what ChatMind keeps of many that have ended
scale    durable conversations by 1, 2 and 4 processes over one PostgreSQL, beside LangGraph
"""

import argparse
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import uvloop

from bench.agent_loop.cost import measure_cost, measure_crowd, measure_memory
from bench.agent_loop.processes import CONTENDERS, USUAL
from bench.agent_loop.scale import measure_scale
from services.common.logging import configure_logging

PARTS: Mapping[str, Callable[[argparse.Namespace], Coroutine[Any, Any, None]]] = {
    "cost": lambda given: measure_cost(names=given.names, rounds=given.rounds),
    "crowd": lambda given: measure_crowd(names=given.names, rounds=given.rounds),
    "memory": lambda given: measure_memory(
        names=given.names, rounds=given.rounds, conversations=given.conversations
    ),
    "scale": lambda given: measure_scale(rounds=given.rounds),
}


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.agent_loop",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "parts", nargs="*", metavar="part", help="all of them, unless some are named"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--names", nargs="+", choices=CONTENDERS, default=USUAL)
    parser.add_argument(
        "--conversations",
        type=int,
        default=10_000,
        help="of ChatMind's, that are to leave no memory behind",
    )
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    configure_logging("bench", level="warning")
    for part in given.parts or PARTS:
        print(f"\n-- {part}, load {os.getloadavg()[0]:.2f}", flush=True)
        begun = time.monotonic()
        uvloop.run(PARTS[part](given))
        print(f"took {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
