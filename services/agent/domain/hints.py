"""The keys of hints: a session's id stands for news in that session, and two more."""

from typing import Final

CHANNEL: Final = "agent"
"""The channel that carries all of them."""

RUNS: Final = "runs"
"""There may be a run to take."""

STOPS: Final = "stops"
"""A run that a worker holds may have to stop."""
