"""A whole installation whose models are real: one small model behind llama.cpp's own server.

Collected only with CHATMIND_LOCAL_MODEL_DIR, which `make test-local-model` sets to the folder that
`tools/local_model.py` has filled. The model is served twice: with a chat template that suits it,
and with its own, in which its tool calls stay unread by the server.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from cli.local.ports import free_ports
from tests.e2e.conftest import run
from tests.e2e.installation import Installation
from tests.e2e.test_first_steps import add_document, create_base
from tests.local_model.handbook import DOCUMENTS
from tests.local_model.llama_server import LlamaServer, llama_server
from tests.local_model.tally import Tally
from tools.local_model import LocalModel

_FOLDER: Final = os.environ.get("CHATMIND_LOCAL_MODEL_DIR", "")
_TALLY: Final = pytest.StashKey[Tally]()
_ENVIRONMENT: Final = {
    "CHATMIND_LOCAL_MODEL_DIR": "",
    "CHATMIND_AGENT_MODEL_SECONDS": "600",
    "CHATMIND_AGENT_MODEL_FIRST_BYTE_SECONDS": "300",
}

collect_ignore_glob = [] if _FOLDER else ["test_*.py"]


@pytest.fixture(scope="session")
def tally(pytestconfig: pytest.Config) -> Tally:
    """What is told at the end; lines written to it are seen at once."""
    reporter = pytestconfig.pluginmanager.get_plugin("terminalreporter")
    assert isinstance(reporter, pytest.TerminalReporter)
    made = Tally(lambda line: reporter.write_line(f"    {line}"))
    pytestconfig.stash[_TALLY] = made
    return made


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Tells how often the model did what it was asked."""
    if made := config.stash.get(_TALLY, None):
        terminalreporter.section("what the model did")
        for line in made.lines():
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def local_model() -> LocalModel:
    """The files of the model."""
    model = LocalModel(Path(_FOLDER))
    if model.missing:
        pytest.fail(f"no {model.missing[0]}; `make test-local-model` makes it", pytrace=False)
    return model


@pytest.fixture(scope="session")
def servers(
    local_model: LocalModel, tally: Tally, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, LlamaServer]]:
    """The model behind each of its chat templates."""
    logs = tmp_path_factory.mktemp("llama-server")
    templates = {"fenced": local_model.fenced_template, "own": None}
    ports = free_ports()
    with ExitStack() as stack:
        started = {
            name: stack.enter_context(
                llama_server(local_model, next(ports), log=logs / f"{name}.log", template=template)
            )
            for name, template in templates.items()
        }
        yield started
        for name, server in started.items():
            tally.notes.append(f"{name} template: {server.work().told()}")


@pytest.fixture(scope="session")
def installation(
    servers: dict[str, LlamaServer], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """An installation with a model for each way to call tools; `native` is the default."""
    data_dir = tmp_path_factory.mktemp("chatmind")
    models = data_dir / "models.toml"
    models.write_text(
        f"""\
        [models.native]
        base_url = "{servers["fenced"].base_url}"
        context_tokens = 8192
        max_concurrent = 1

        [models.stream]
        base_url = "{servers["fenced"].base_url}"
        context_tokens = 8192
        stream = true

        [models.tags]
        base_url = "{servers["fenced"].base_url}"
        context_tokens = 8192
        tool_protocol = "tags"

        [models.own-template]
        base_url = "{servers["own"].base_url}"
        context_tokens = 8192
        """,
        encoding="utf-8",
    )
    yield from run(data_dir, CHATMIND_MODELS_FILE=str(models), **_ENVIRONMENT)


@pytest.fixture(scope="session")
def base_id(installation: Installation) -> str:
    """A base with a small handbook in two languages."""
    base_id = create_base(installation, "Handbook")
    for name, text in DOCUMENTS.items():
        document = add_document(installation, base_id, name, text.encode())
        assert document["state"] == "STATE_READY"
    return base_id
