"""Agents and knowledge bases by name or id."""

import pytest
from chatmind.agent.v1 import agent_pb2

from cli.client import Gateway
from cli.errors import CommandError
from cli.lookup import (
    agents_called,
    bases_called,
    first_agent,
    one_agent,
    one_base,
    one_base_or_new,
)
from services.common.ids import new_id
from tests.cli.gateway import Base, State


def agents(*names: str) -> list[agent_pb2.Agent]:
    return [agent_pb2.Agent(id=new_id(), display_name=name) for name in names]


def bases(*names: str) -> list[Base]:
    return [Base(id=new_id(), display_name=name) for name in names]


class TestAgents:
    def test_one_is_found_by_its_name_or_its_id(self, gateway: Gateway, state: State) -> None:
        state.agents = agents("A", "B")
        wanted = state.agents[1]

        assert one_agent(gateway, "B") == one_agent(gateway, wanted.id) == wanted

    def test_of_several_of_a_name_one_is_found_by_its_id_alone(
        self, gateway: Gateway, state: State
    ) -> None:
        state.agents = agents("A", "A")
        ids = [agent.id for agent in state.agents]

        assert one_agent(gateway, ids[1]).id == ids[1]
        with pytest.raises(CommandError, match=f"several agents are called 'A'.*{ids[0]}"):
            one_agent(gateway, "A")

    def test_an_unknown_name_is_told(self, gateway: Gateway) -> None:
        with pytest.raises(CommandError, match=r"^no agent is called 'C'; create one with"):
            one_agent(gateway, "C")

    def test_an_empty_name_names_none(self, gateway: Gateway, state: State) -> None:
        state.agents = agents("A")

        assert list(agents_called(gateway, "")) == []
        with pytest.raises(CommandError, match=r"^no agent is called ''"):
            one_agent(gateway, "")


class TestFirstAgent:
    def test_it_is_the_oldest(self, gateway: Gateway, state: State) -> None:
        state.agents = agents("A", "B")

        assert first_agent(gateway).display_name == "A"

    def test_where_there_is_none_it_is_told(self, gateway: Gateway) -> None:
        with pytest.raises(CommandError, match=r"^there is no agent yet; create one with"):
            first_agent(gateway)


class TestBases:
    def test_one_is_found_by_its_name_or_its_id(self, gateway: Gateway, state: State) -> None:
        state.bases = bases("x", "y")
        wanted = state.bases[1]

        assert one_base(gateway, "y") == one_base(gateway, wanted.id) == wanted

    def test_of_several_of_a_name_one_is_found_by_its_id_alone(
        self, gateway: Gateway, state: State
    ) -> None:
        state.bases = bases("x", "x")
        ids = [base.id for base in state.bases]

        assert one_base(gateway, ids[1]).id == ids[1]
        with pytest.raises(CommandError, match=f"several bases are called 'x'.*{ids[0]}"):
            one_base(gateway, "x")

    def test_an_unknown_name_is_told(self, gateway: Gateway) -> None:
        with pytest.raises(CommandError, match=r"^no knowledge base is called 'y'$"):
            one_base(gateway, "y")

    def test_an_empty_name_names_none(self, gateway: Gateway, state: State) -> None:
        state.bases = bases("x")

        assert list(bases_called(gateway, "")) == []
        with pytest.raises(CommandError, match=r"^no knowledge base is called ''$"):
            one_base(gateway, "")


class TestOneBaseOrNew:
    def test_it_is_made_once(self, gateway: Gateway, state: State) -> None:
        wanted = Base(display_name="x", description="All of it.")
        first, second = one_base_or_new(gateway, wanted), one_base_or_new(gateway, wanted)

        assert first == second
        assert [base.description for base in state.bases] == ["All of it."]
