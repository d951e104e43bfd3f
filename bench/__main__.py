"""Runs every measurement, or those that are named: `python -m bench [markdown] [search] …`."""

import subprocess
import sys
from pathlib import Path

BENCHES = (
    "markdown",
    "embedding",
    "ingest",
    "search",
    "queue",
    "runs",
    "agent_loop",
    "bus",
    "stream",
)


def main() -> int:
    """Runs them one after another, each in a process of its own; gives the worst exit status."""
    wanted = sys.argv[1:] or BENCHES
    if unknown := [name for name in wanted if name not in BENCHES]:
        sys.stderr.write(f"unknown: {', '.join(unknown)}; there are {', '.join(BENCHES)}\n")
        return 2
    return max(_run(name) for name in wanted)


def _run(name: str) -> int:
    print(f"== {name}", flush=True)
    module = [sys.executable, "-m", f"bench.{name}"]
    return subprocess.run(module, cwd=Path(__file__).parents[1], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
