"""Everything on one machine, with services that are easily told what to do."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from chatmind.knowledge.v1 import knowledge_service_pb2

from cli.client import connect, read_key
from cli.local import up
from cli.local.cluster import DataDirectory
from cli.local.errors import AlreadyRunningError, StartError
from cli.local.ports import free_ports
from cli.local.starter import BASE_NAME
from cli.output import Output
from tests.cli.local.children import is_left

ROOT = Path(__file__).parents[3]
SERVICES = ("embedding", "knowledge", "agent", "gateway")

# Found before the real ones, but next to what all services share.
_PACKAGE = "__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n"
_MODULE = """
import os, signal, sys, threading
from pathlib import Path

name, address = {name!r}, os.environ["CHATMIND_{upper}_LISTEN"]
stopped = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stopped.set())
if name in os.environ.get("FAILING", ""):
    sys.exit("no \\x1b[2Jmodel [red]at all")
{prepare}
if name in os.environ.get("ABSENT", ""):
    print("busy", flush=True)
    stopped.wait()
else:
    with {serving}:
        print("serving", os.environ["CHATMIND_DATABASE_URL"], flush=True)
        stopped.wait()
    threading.Event().wait(0.2)
print("stopped", flush=True)
"""
_GATEWAY = """
from tests.cli.gateway import KEY, State, serving
Path(os.environ["CHATMIND_GATEWAY_ADMIN_KEY_FILE"]).write_text(KEY)
"""
_OTHER = "from tests.cli.local.health import serving"


def module(name: str) -> str:
    """A service: the gateway is one that commands can talk to, the others are merely there."""
    is_gateway = name == "gateway"
    return _MODULE.format(
        name=name,
        upper=name.upper(),
        prepare=_GATEWAY if is_gateway else _OTHER,
        serving="serving(State(), address=address)" if is_gateway else "serving(address)",
    )


@dataclass(frozen=True, slots=True)
class Machine:
    """Where everything is put and listens."""

    data_dir: Path
    addresses: dict[str, str]
    environment: dict[str, str]

    def log(self, name: str) -> str:
        path = self.data_dir / f"logs/{name}.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    @property
    def is_quiet(self) -> bool:
        return all(is_left(address) for address in self.addresses.values())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with a database of its own and services that are easily told what to do."""
    package = tmp_path / "path/services"
    for name in SERVICES:
        (package / name).mkdir(parents=True)
        (package / name / "__init__.py").write_text(_PACKAGE, encoding="utf-8")
        (package / name / "__main__.py").write_text(module(name), encoding="utf-8")
    (package / "__init__.py").write_text(_PACKAGE, encoding="utf-8")
    ports = free_ports()
    addresses = {name: f"127.0.0.1:{next(ports)}" for name in (*SERVICES, "gateway_http")}
    environment = {
        **{f"CHATMIND_{name.upper()}_LISTEN": address for name, address in addresses.items()},
        "CHATMIND_DATABASE_URL": "postgresql://elsewhere/chatmind",
        "PYTHONPATH": f"{tmp_path / 'path'}{os.pathsep}{ROOT}",
    }
    return Machine(tmp_path / "data", addresses, environment)


@contextmanager
def started(machine: Machine, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """`chatmind up` in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "cli.main", "up", "--data-dir", str(machine.data_dir)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **machine.environment, **environment},
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=30)
        until(lambda: machine.is_quiet)


def until(holds: Callable[[], bool]) -> None:
    """Waits for what gives no sign of its own."""
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


class TestRunning:
    def test_it_says_once_where_everything_is_and_stops_when_asked(self, machine: Machine) -> None:
        key_file = machine.data_dir / "admin.key"
        grpc, http = machine.addresses["gateway"], machine.addresses["gateway_http"]
        with started(machine) as process:
            assert read_line(process) == f"ready grpc={grpc} http=http://{http} key={key_file}\n"
            with connect(grpc, read_key(key_file)) as gateway:
                listed = gateway.knowledge.ListKnowledgeBases(
                    knowledge_service_pb2.ListKnowledgeBasesRequest(), timeout=10
                )
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)

        assert (process.returncode, out) == (0, "")
        assert err.splitlines() == ["starting embedding, knowledge, agent, gateway", "stopped"]
        assert [base.display_name for base in listed.knowledge_bases] == [BASE_NAME]
        for name in SERVICES:
            assert machine.log(name) == "serving postgresql://elsewhere/chatmind\nstopped\n"

    def test_asking_twice_does_not_cut_the_end_short(self, machine: Machine) -> None:
        with started(machine) as process:
            read_line(process)
            process.send_signal(signal.SIGHUP)
            until(lambda: is_left(machine.addresses["gateway"]))
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=30)

        assert (process.returncode, err.splitlines()[-1]) == (0, "stopped")
        assert all("stopped" in machine.log(name) for name in SERVICES)

    def test_a_start_can_be_broken_off(self, machine: Machine) -> None:
        with started(machine, ABSENT="agent") as process:
            until(lambda: "busy" in machine.log("agent"))
            until(lambda: "serving" in machine.log("gateway"))
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)

        assert (process.returncode, out, err.splitlines()[-1]) == (0, "", "stopped")
        assert all("stopped" in machine.log(name) for name in SERVICES)

    def test_a_service_that_does_not_come_up_is_told_with_its_log(self, machine: Machine) -> None:
        with started(machine, FAILING="knowledge") as process:
            out, err = process.communicate(timeout=30)

        assert (process.returncode, out) == (1, "")
        assert err.splitlines()[1:] == [
            "error: knowledge ended with status 1:",
            "no [2Jmodel [red]at all",
        ]
        assert machine.is_quiet


class TestSettings:
    def test_wrong_ones_are_all_named_before_anything_starts(self, machine: Machine) -> None:
        wrong = {"CHATMIND_GATEWAY_LISTEN": "foo", "CHATMIND_AGENT_LEASE_SECONDS": "soon"}
        with started(machine, **wrong, CHATMIND_DATABASE_URL="") as process:
            out, err = process.communicate(timeout=30)

        assert (process.returncode, out) == (1, "")
        assert sorted(line.removeprefix("error: ").split(":")[0] for line in err.splitlines()) == [
            "CHATMIND_AGENT_LEASE_SECONDS",
            "CHATMIND_GATEWAY_LISTEN",
        ]
        assert not machine.data_dir.exists()

    def test_misspelled_ones_are_told_and_hinder_nothing(self, machine: Machine) -> None:
        with started(machine, CHATMIND_AGENT_LEASE_SECOND="5") as process:
            ready = read_line(process)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)

        assert ready.startswith("ready ")
        assert err.splitlines()[0] == (
            "warning: CHATMIND_AGENT_LEASE_SECOND is not a setting of ChatMind; "
            "did you mean CHATMIND_AGENT_LEASE_SECONDS?"
        )


class TestNotRunning:
    async def test_an_address_in_use_is_told(
        self, machine: Machine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, value in machine.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(up, "_LEAVE_SECONDS", 0.1)
        host, port = machine.addresses["agent"].split(":")
        with (
            socket.create_server((host, int(port))),
            pytest.raises(
                StartError,
                match=rf"^{host}:{port} is in use by .*; CHATMIND_AGENT_LISTEN ",
            ),
        ):
            await up.run_everything(machine.data_dir, Output(as_json=False))

    async def test_a_second_one_is_told_that_it_is(
        self, machine: Machine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """At once, and not that the addresses of the first are taken."""
        for name, value in machine.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("CHATMIND_DATABASE_URL")
        host, port = machine.addresses["agent"].split(":")
        with (
            socket.create_server((host, int(port))),
            DataDirectory(machine.data_dir).supervised(),
            pytest.raises(AlreadyRunningError),
        ):
            await up.run_everything(machine.data_dir, Output(as_json=False))

    async def test_a_folder_that_cannot_be_had_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()

        with pytest.raises(StartError, match=r"/file/data cannot be used: Not a directory$"):
            await up.run_everything(tmp_path / "file/data", Output(as_json=False))

    async def test_a_damaged_key_is_told(
        self, machine: Machine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, value in machine.environment.items():
            monkeypatch.setenv(name, value)
        (machine.data_dir / "identity/agent").mkdir(parents=True)
        (machine.data_dir / "identity/agent/agent.pem").write_bytes(b"nonsense")

        with pytest.raises(StartError, match=r"agent\.pem holds no signing key"):
            await up.run_everything(machine.data_dir, Output(as_json=False))
