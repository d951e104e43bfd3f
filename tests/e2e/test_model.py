"""A configured model: a server that says what the test tells it, over real HTTP."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.agent.scripted_model import ScriptedModel, calls, fails, says, scripted_model
from tests.e2e.conftest import run
from tests.e2e.installation import Installation, JsonObject
from tests.e2e.test_first_steps import (
    AGENT,
    GATEWAY,
    add_document,
    create_base,
    first_messages,
)

pytestmark = pytest.mark.timeout(300)

LARGE = 5 * 1024 * 1024
MESSAGE_BYTES = 1024 * 1024


@contextmanager
def model_in_a_thread() -> Iterator[ScriptedModel]:
    """A scripted model that serves while the test blocks."""
    ready, done = threading.Event(), asyncio.Event()
    served: list[tuple[ScriptedModel, asyncio.AbstractEventLoop]] = []

    async def serve() -> None:
        async with scripted_model() as model:
            served.append((model, asyncio.get_running_loop()))
            ready.set()
            await done.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    ready.wait(10)
    model, loop = served[0]
    try:
        yield model
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(10)


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    """The model of this module's installation."""
    with model_in_a_thread() as model:
        yield model


@pytest.fixture(scope="module")
def installation(
    model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """An installation whose default model is the scripted one."""
    data_dir = tmp_path_factory.mktemp("chatmind")
    models = data_dir / "models.toml"
    models.write_text(f'[models.scripted]\nmodel = "m1"\nbase_url = "{model.base_url}"\n')
    yield from run(data_dir, CHATMIND_MODELS_FILE=str(models))


@pytest.fixture(scope="module")
def agent_id(installation: Installation) -> str:
    """An agent with one small document."""
    base_id = create_base(installation, "tea")
    add_document(installation, base_id, "tea.md", b"# Tea\n\nBrew it at seventy degrees.\n")
    agent = {"displayName": "Tea", "knowledgeBaseIds": [base_id]}
    created = installation.call(f"{AGENT}/CreateAgent", {"agent": agent}).message["agent"]
    return str(created["id"])


class TestModel:
    """A conversation with a model that calls tools."""

    def ask(self, installation: Installation, agent_id: str, *, count: int) -> list[JsonObject]:
        """The messages of one turn in a new session."""
        request = {"agentId": agent_id, "text": "How hot?"}
        sent = installation.call(f"{GATEWAY}/SendMessage", request).message
        request = {"sessionId": sent["sessionId"], "afterSequence": "0"}
        with installation.stream(f"{GATEWAY}/StreamMessages", request) as events:
            return list(first_messages(events, count))

    def test_the_answer_cites_what_the_tool_found(
        self, installation: Installation, model: ScriptedModel, agent_id: str
    ) -> None:
        """The model's own call is executed, and its marks become citations."""
        model.script(
            calls(("c1", "query_knowledge", json.dumps({"query": "tea temperature"}))),
            says("Seventy degrees [1]."),
        )

        _, asks, tool, answer = self.ask(installation, agent_id, count=4)

        assert asks["toolCalls"][0]["id"] == tool["toolCallId"]
        assert "seventy degrees" in tool["text"]
        assert answer["text"] == "Seventy degrees [1]."
        assert [c["documentName"] for c in answer["citations"]] == ["tea.md"]

    def test_five_megabytes_of_answer_are_cut_and_say_so(
        self, installation: Installation, model: ScriptedModel, agent_id: str
    ) -> None:
        """A reply over a message's limit keeps what every client can receive, and is marked."""
        model.script(says("x" * LARGE))

        _, answer = self.ask(installation, agent_id, count=2)

        assert len(answer["text"]) == MESSAGE_BYTES
        assert answer["text"].endswith(f"x\n[cut here: {LARGE} bytes in all]")

    def test_a_model_that_refuses_ends_the_run_readably(
        self, installation: Installation, model: ScriptedModel, agent_id: str
    ) -> None:
        """The user is told in a SYSTEM message; other work goes on."""
        model.script(fails(401))

        _, notice = self.ask(installation, agent_id, count=2)

        assert notice["role"] == "ROLE_SYSTEM"
        assert "m1" in notice["text"] or "model" in notice["text"]

    def test_killed_services_come_back_by_themselves(
        self, installation: Installation, model: ScriptedModel, agent_id: str, tmp_path: Path
    ) -> None:
        """SIGKILL of the agent service: the supervisor starts it again, and it answers."""
        installation.service("agent").kill()
        installation.wait_until_ready()
        model.script(says("Back again."))

        _, answer = self.ask(installation, agent_id, count=2)

        assert answer["text"] == "Back again."
