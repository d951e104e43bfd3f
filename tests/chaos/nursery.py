"""Starts ChatMind's processes fast: `python -m tests.chaos.nursery`, told what to do on stdin.

Importing the services takes two seconds of a core, and a campaign starts hundreds of processes. So
this process imports them once, starts no thread and no event loop, and forks: a fork is then ready
in a tenth of that. One JSON object per line comes in: `{"id", "program", "environment", "log"}`,
where `program` names a module with a `main`. One per line goes out: `{"id", "pid"}`, and later
`{"pid", "stopped"}` and `{"pid", "ended"}`.

All forks end with this process, and this process with its parent.
"""

import ctypes
import gc
import importlib
import json
import os
import selectors
import signal
import sys
import traceback
from typing import Any

PROGRAMS = ("tests.chaos.agent", "tests.chaos.gateway")
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve until stdin is closed."""
    _end_with_parent()
    for program in PROGRAMS:
        importlib.import_module(program)
    gc.freeze()
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    selector = selectors.DefaultSelector()
    selector.register(0, selectors.EVENT_READ)
    selector.register(woken, selectors.EVENT_READ)
    _tell(ready=True)
    pending = b""
    while True:
        for key, _ in selector.select():
            if key.fd == woken:
                os.read(woken, 4096)
                _tell_changes()
            elif not (told := os.read(0, 65536)):
                return
            else:
                *lines, pending = (pending + told).split(b"\n")
                for line in lines:
                    _start(json.loads(line))


def _start(wanted: dict[str, Any]) -> None:
    pid = os.fork()
    if pid == 0:
        _be(wanted)
    _tell(id=wanted["id"], pid=pid)


def _be(wanted: dict[str, Any]) -> None:
    """Become the process that is wanted."""
    status = 1
    try:
        _end_with_parent()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        log = os.open(wanted["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, nothing), (1, log), (2, log)):
            os.dup2(source, target)
        os.environ.clear()
        os.environ.update(wanted["environment"])
        importlib.import_module(wanted["program"]).main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)  # noqa: T201
    except BaseException:  # noqa: BLE001 - nothing may get back into the parent's loop
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _tell_changes() -> None:
    """Tell which forks have been stopped or have ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if os.WIFSTOPPED(status):
            _tell(pid=pid, stopped=True)
        else:
            _tell(pid=pid, ended=os.waitstatus_to_exitcode(status))


def _tell(**news: object) -> None:
    os.write(1, json.dumps(news).encode() + b"\n")


def _end_with_parent() -> None:
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    main()
