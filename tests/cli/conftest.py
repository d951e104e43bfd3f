"""A gateway for the commands to talk to."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cli.client import Gateway, connect
from cli.commands.root import app
from tests.cli.gateway import KEY, State, serving

Chatmind = Callable[..., Result]


@pytest.fixture
def state() -> State:
    """What the gateway knows."""
    return State()


@pytest.fixture
def address(state: State) -> Iterator[str]:
    """Where the gateway is."""
    with serving(state) as address:
        yield address


@pytest.fixture
def gateway(address: str) -> Iterator[Gateway]:
    """The gateway as commands see it."""
    with connect(address, KEY) as gateway:
        yield gateway


@pytest.fixture
def environment(address: str, tmp_path: Path) -> dict[str, str]:
    """What a command is told by its environment."""
    return {
        "CHATMIND_SERVER": address,
        "CHATMIND_API_KEY": KEY,
        "CHATMIND_DATA_DIR": str(tmp_path / "none"),
    }


@pytest.fixture
def chatmind(environment: dict[str, str]) -> Chatmind:
    """Runs a command line in this process."""

    def run(*arguments: str, stdin: str = "") -> Result:
        return CliRunner().invoke(app, arguments, input=stdin, env=environment)

    return run


@pytest.fixture
def whole_environment(environment: dict[str, str]) -> dict[str, str]:
    """The same for a process of its own, whose output is buffered as from a shell."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return {**inherited, **environment}
