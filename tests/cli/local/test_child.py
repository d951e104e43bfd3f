"""Children that end with their supervisor."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

_MODULE = """
import signal, sys, time
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    def stop(*_):
        print("asked", flush=True)
        sys.exit(7)
    signal.signal(signal.SIGTERM, stop)
print(__name__, *sys.argv[1:], flush=True)
while True:
    time.sleep(60)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment in which a child finds its module."""
    (tmp_path / "module_of_test.py").write_text(_MODULE, encoding="utf-8")
    return {**os.environ, "PYTHONPATH": str(tmp_path)}


def spawn(command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    """A process of which all three streams are pipes."""
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, text=True
    )


def start(environment: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    """A child that has begun."""
    program = "from cli.local.child import main; main(grace=0.3)"
    command = [sys.executable, "-P", "-c", program, "module_of_test", *arguments]
    process = spawn(command, environment)
    assert process.stdout is not None
    assert process.stdout.readline().split() == ["__main__", *arguments]
    return process


class TestChild:
    def test_when_its_input_ends_the_module_is_asked_to_stop(
        self, environment: dict[str, str]
    ) -> None:
        process = start(environment)
        out, err = process.communicate(timeout=20)

        assert (process.returncode, out, err) == (7, "asked\n", "")

    def test_one_that_does_not_listen_is_ended_all_the_same(
        self, environment: dict[str, str]
    ) -> None:
        process = start(environment, "deaf")
        out, err = process.communicate(timeout=20)

        assert (process.returncode, out, err) == (1, "", "")

    def test_as_long_as_its_input_is_open_it_goes_on(self, environment: dict[str, str]) -> None:
        process = start(environment)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=20)

        assert (process.returncode, out) == (7, "asked\n")

    def test_as_a_module_it_runs_another(self, environment: dict[str, str]) -> None:
        command = [sys.executable, "-P", "-m", "cli.local.child", "module_of_test", "more"]
        process = spawn(command, environment)
        assert process.stdout is not None

        assert process.stdout.readline() == "__main__ more\n"
        process.communicate(timeout=20)
