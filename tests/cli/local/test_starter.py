"""What a newcomer finds."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from chatmind.agent.v1 import agent_pb2
from chatmind.knowledge.v1 import knowledge_base_pb2

from cli.client import Gateway, connect
from cli.local.starter import AGENT_NAME, BASE_NAME, ensure_starter, handbook_files
from tests.cli.gateway import KEY, Base, State, serving


@pytest.fixture
def state() -> State:
    return State()


@pytest.fixture
def gateway(state: State) -> Iterator[Gateway]:
    with serving(state) as address, connect(address, KEY) as gateway:
        yield gateway


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a README and two documents."""
    (tmp_path / "docs/decisions").mkdir(parents=True)
    for name in ("README.md", "CHANGELOG.md", "docs/b.md", "docs/decisions/a.md", "docs/c.png"):
        (tmp_path / name).write_text(f"# {name}\n", encoding="utf-8")
    return tmp_path


class TestHandbookFiles:
    def test_it_is_the_readme_and_the_docs(self, root: Path) -> None:
        assert [file.name for file in handbook_files(root)] == [
            "README.md",
            "docs/b.md",
            "docs/decisions/a.md",
        ]

    def test_where_they_were_not_installed_it_is_empty(self, tmp_path: Path) -> None:
        assert handbook_files(tmp_path / "nowhere") == []


class TestEnsureStarter:
    def test_a_base_and_an_agent_that_knows_it_are_shared_with_all(
        self, gateway: Gateway, state: State, root: Path
    ) -> None:
        ensure_starter(gateway, root)
        (base,), (agent,) = state.bases, state.agents

        assert (base.display_name, agent.display_name) == (BASE_NAME, AGENT_NAME)
        assert agent.knowledge_base_ids == [base.id]
        assert base.visibility == knowledge_base_pb2.VISIBILITY_TENANT
        assert agent.visibility == agent_pb2.VISIBILITY_TENANT
        assert sorted(state.contents) == ["README.md", "docs/b.md", "docs/decisions/a.md"]

    def test_a_second_start_makes_nothing_twice(
        self, gateway: Gateway, state: State, root: Path
    ) -> None:
        ensure_starter(gateway, root)
        ensure_starter(gateway, root)

        assert (len(state.bases), len(state.agents)) == (1, 1)

    def test_what_the_person_made_of_them_stays(
        self, gateway: Gateway, state: State, root: Path
    ) -> None:
        own = agent_pb2.Agent(id="a1", display_name=AGENT_NAME, system_prompt="Mine.")
        state.agents, state.bases = [own], [Base(id="b1", display_name=BASE_NAME)]
        ensure_starter(gateway, root)

        assert state.agents == [own]
        assert {document.knowledge_base_id for document in state.documents} == {"b1"}

    def test_what_others_call_by_the_same_names_is_no_obstacle(
        self, gateway: Gateway, state: State, root: Path
    ) -> None:
        state.bases = [Base(id=name, display_name=BASE_NAME) for name in ("b1", "b2")]
        state.agents = [agent_pb2.Agent(id=name, display_name=AGENT_NAME) for name in ("a1", "a2")]
        ensure_starter(gateway, root)

        assert (len(state.bases), len(state.agents)) == (2, 2)
        assert {document.knowledge_base_id for document in state.documents} == {"b1"}
