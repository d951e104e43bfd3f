"""A service as a process, started and stopped from outside."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2

from tests.calls import blocking_health_of

_PROGRAM = """
import asyncio, gc, sys
from contextlib import asynccontextmanager
from pathlib import Path
from services.common.errors import FailedPreconditionError
from services.common.logging import configure_logging
from services.common.process import run_service, until_stopped
from services.common.server import serve
from services.common.settings import ServerSettings

configure_logging("example", level="warning")

@asynccontextmanager
async def service():
    settings = ServerSettings(
        listen=sys.argv[1], identity_dir=Path(), drain_seconds=0.3, grace_seconds=1
    )
    async with serve(
        settings, services=[], register=lambda _: None, interceptors=(), draining=asyncio.Event()
    ) as server:
        print(server.port, flush=True)
        made_at_start = gc.get_freeze_count()
        yield
        print("asked", flush=True)
        if gc.get_freeze_count() <= made_at_start:
            sys.exit("the collector looks at everything")
    print("stopped", flush=True)

def work():
    return until_stopped(service())

async def fail():
    raise {error}

run_service("example", {what}())
"""


def program(listen: str, *, what: str = "work", error: str = "None") -> list[str]:
    return [sys.executable, "-c", _PROGRAM.format(what=what, error=error), listen]


@contextmanager
def started() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that serves, and its port."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(program("127.0.0.1:0"), stdout=pipe, stderr=pipe, text=True)
    assert process.stdout is not None
    try:
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate(timeout=10)


class TestStopping:
    @pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
    def test_a_signal_ends_it_in_order(self, signum: signal.Signals) -> None:
        with started() as (process, port):
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                answer = blocking_health_of(channel).Check(
                    health_pb2.HealthCheckRequest(), timeout=10
                )
                assert answer.status == health_pb2.HealthCheckResponse.SERVING
            process.send_signal(signum)
            out, err = process.communicate(timeout=20)

        assert (process.returncode, out) == (0, "asked\nstopped\n")
        assert "Traceback" not in err

    @pytest.mark.parametrize("again", [signal.SIGTERM, signal.SIGINT])
    def test_a_second_signal_does_not_cut_the_end_short(self, again: signal.Signals) -> None:
        with started() as (process, _):
            assert process.stdout is not None
            process.send_signal(signal.SIGTERM)
            asked = process.stdout.readline()
            process.send_signal(again)
            out, _ = process.communicate(timeout=20)

        assert asked == "asked\n"
        assert (process.returncode, out) == (0, "stopped\n")


class TestNotStarting:
    def test_an_address_in_use_is_told_in_one_line(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            ended = subprocess.run(
                program(address),
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
                env={"GRPC_VERBOSITY": "NONE"},
                cwd=Path(__file__).parents[2],
            )

        expected = f"example: cannot listen on {address}: Address already in use\n"
        assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", expected)

    @pytest.mark.parametrize(
        ("error", "told"),
        [
            ("FailedPreconditionError('The schema is\\nnewer.')", "The schema is newer."),
            ("FileNotFoundError(2, 'No such file', 'agent.pem')", "[Errno 2] No such file: 'agent"),
        ],
    )
    def test_what_keeps_it_from_working_is_told_in_one_line(self, error: str, told: str) -> None:
        ended = subprocess.run(
            program("", what="fail", error=error),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

        assert (ended.returncode, len(ended.stderr.splitlines())) == (1, 1)
        assert ended.stderr.startswith(f"example: {told}")

    def test_a_fault_keeps_its_traceback(self) -> None:
        ended = subprocess.run(
            program("", what="fail", error="ValueError('a fault')"),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

        assert ended.returncode == 1
        assert "Traceback" in ended.stderr
