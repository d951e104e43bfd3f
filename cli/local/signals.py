"""Signals to child processes."""

import contextlib
import os
from asyncio.subprocess import Process
from signal import Signals


def send(process: Process, number: Signals) -> None:
    """Send a signal to a child, unless it has ended.

    `Process.send_signal` would first look whether the child has ended, and so might take the exit
    status that the event loop waits for: the loop would then report 255.
    """
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)
