"""Runs a module that ends with whoever started it: `python -m cli.local.child services.agent`.

Standard input is a pipe that the supervisor holds open and never writes to. It reaches its end when
the supervisor is gone, by SIGKILL too, on every platform; then this process is asked to stop, and
after a while made to.
"""

import os
import runpy
import signal
import sys
import threading
import time


def main(grace: float = 15.0) -> None:
    """Runs the module named on the command line as the main program.

    Args:
        grace: seconds it may take to stop when the supervisor is gone.
    """
    threading.Thread(target=_end_with_supervisor, args=(grace,), daemon=True).start()
    module = sys.argv[1]
    sys.argv = sys.argv[1:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _end_with_supervisor(grace: float) -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace)
    os._exit(1)


if __name__ == "__main__":
    main()
