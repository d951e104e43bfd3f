"""Runs a module that ends with its supervisor: `python -m cli.local.child services.agent`.

Standard input is a pipe that the supervisor holds open and never writes to. On every platform it
closes when the supervisor is gone, even by SIGKILL. This process then gets SIGTERM, and is killed
if that takes too long.
"""

import os
import runpy
import signal
import sys
import threading
import time


def main(grace: float = 15.0) -> None:
    """Run the module named on the command line as the main program.

    Args:
        grace: seconds that it may take to stop after the supervisor is gone.
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
