"""Named points of a step at which a process under test kills or freezes itself.

    CHAOS_FAILPOINTS="tool.after=kill@1 result.before=stop@3"

kills the process when it gets to the end of a tool for the first time, and freezes it when it is
about to record a result for the third time. A step passes twelve points: before and after the model
is asked, its reply is recorded, the calls are announced, a tool is executed, its result is
recorded, and the run is finished.
"""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog

VARIABLE: Final = "CHAOS_FAILPOINTS"
REACHED: Final = "failpoint"
"""What the log says of one that acts."""

ACTS: Final = ("model", "reply", "announce", "tool", "result", "finish")
SUBMIT: Final = "submit"
POINTS: Final = tuple(f"{act}.{side}" for act in ACTS for side in ("before", "after"))

_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


class Failpoints:
    """The points at which this process fails; each does it once."""

    def __init__(self, told: str) -> None:
        """Read them from what the variable holds.

        Raises:
            ValueError: it is malformed.
        """
        self._armed: dict[str, tuple[signal.Signals, int]] = {}
        self._passed: Counter[str] = Counter()
        for each in told.split():
            point, _, what = each.partition("=")
            act, _, time = what.partition("@")
            if act not in _SIGNALS:
                raise ValueError(f"not a failpoint: {each!r}")
            self._armed[point] = (_SIGNALS[act], int(time or 1))

    def reach(self, point: str) -> bool:
        """Fail if it is time to; whether the process was frozen and lives again."""
        self._passed[point] += 1
        signum, time = self._armed.get(point, (signal.SIGKILL, 0))
        if self._passed[point] != time:
            return False
        structlog.get_logger("chaos").warning(REACHED, point=point)
        os.kill(os.getpid(), signum)
        return True

    @contextmanager
    def around(self, act: str) -> Iterator[bool]:
        """Reach the points before and after an act; gives what `reach` does for the first."""
        yield self.reach(f"{act}.before")
        self.reach(f"{act}.after")
