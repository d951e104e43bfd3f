"""What it costs a gateway to stream, and how soon messages arrive.

cpu      the server's processor time for each message of 500 characters, over 200 streams: a gateway
         before an agent service of which it pays the receiving alone, a bare servicer of grpc.aio,
         and Starlette's server-sent events; 1,000 messages a second, then as many as are read
memory   of the same servers for each stream that is open and silent
fan      how long a message to each of 2,000 streams takes, all at once
delay    from the commit of a message to its client, through PostgreSQL, agent service and gateway,
         at 200 messages a second over 500 streams; beside a bare servicer that makes them itself
herd     a gateway with 2,000 streams is killed and started again, and all clients resume
restart  three gateways are replaced 20 times in turns, while unary calls are made, messages sent
         and sessions followed

Servers and those who measure them have a core each, but in delay and restart.
"""

import argparse
import os
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import uvloop

from bench.contest import versions
from bench.stream.cost import measure_cpu, measure_fan, measure_memory
from bench.stream.delay import measure_delay
from bench.stream.herd import measure_herd
from bench.stream.processes import CORES
from bench.stream.restart import measure_restart
from services.common.logging import configure_logging

PARTS: Mapping[str, Callable[[argparse.Namespace], Coroutine[Any, Any, None]]] = {
    "cpu": lambda given: measure_cpu(rounds=given.rounds, seconds=given.seconds),
    "memory": lambda given: measure_memory(streams=given.streams),
    "fan": lambda given: measure_fan(streams=given.streams, rounds=given.rounds),
    "delay": lambda given: measure_delay(rounds=given.rounds, seconds=given.seconds),
    "herd": lambda given: measure_herd(streams=given.streams, rounds=given.rounds),
    "restart": lambda _: measure_restart(),
}


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.stream",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "parts", nargs="*", metavar="part", help="all of them, unless some are named"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5, help="of each turn")
    parser.add_argument("--streams", type=int, default=2000)
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    configure_logging("bench", level="warning")
    print(versions("grpcio", "starlette", "uvicorn", "uvloop"))
    for part in given.parts or PARTS:
        print(f"\n-- {part}, load {os.getloadavg()[0]:.2f}", flush=True)
        os.sched_setaffinity(0, CORES)
        uvloop.run(PARTS[part](given))


if __name__ == "__main__":
    main()
