"""The start of the command."""

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

_SLOW_TYPER = """
import time
print("importing", flush=True)
time.sleep(30)
"""


class TestInterrupt:
    def test_during_the_imports_it_ends_the_command_without_a_traceback(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / "typer.py").write_text(_SLOW_TYPER)
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

        with subprocess.Popen(
            [sys.executable, "-m", "cli.main"],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as command:
            assert command.stdout is not None
            assert command.stdout.readline() == "importing\n"
            command.send_signal(signal.SIGINT)
            _, errors = command.communicate(timeout=20)

        assert (errors, command.returncode) == ("", -signal.SIGINT)
