from dataclasses import replace

import pytest

from services.agent.domain.callees import check_callees
from services.agent.domain.errors import AgentCycleError, UnknownAgentError
from services.agent.domain.models import Agent, AgentId
from services.common.identity import Identity
from services.common.ids import new_id
from tests.contracts.agent_stores import ADMIN, ALICE, BOB, PRIVATE, SHARED, Stores, memory_stores


@pytest.fixture
def stores() -> Stores:
    return memory_stores()


async def agent(stores: Stores, *callees: Agent, identity: Identity = ALICE) -> Agent:
    ids = tuple(callee.id for callee in callees)
    return await stores.agents.create(identity, replace(SHARED, agent_ids=ids))


class TestSight:
    async def test_what_is_seen_may_be_called(self, stores: Stores) -> None:
        own = await stores.agents.create(ALICE, PRIVATE)
        shared = await agent(stores, identity=BOB)

        await check_callees(stores.agents, ALICE, [own.id, shared.id])

    async def test_what_is_unknown_or_unseen_is_refused_by_its_place(self, stores: Stores) -> None:
        own = await agent(stores)
        hidden = await stores.agents.create(BOB, PRIVATE)

        for agent_id in (hidden.id, AgentId(new_id())):
            with pytest.raises(UnknownAgentError) as refused:
                await check_callees(stores.agents, ALICE, [own.id, agent_id])
            assert [each.field for each in refused.value.violations] == ["agent.agent_ids[1]"]
            assert {"agent_id": agent_id} == refused.value.metadata

    async def test_the_owner_has_to_see_it_whoever_makes_the_change(self, stores: Stores) -> None:
        caller = await agent(stores)
        admins = await stores.agents.create(ADMIN, PRIVATE)

        with pytest.raises(UnknownAgentError):
            await check_callees(stores.agents, ADMIN, [admins.id], caller=caller)

    async def test_who_makes_the_change_has_to_see_it_too(self, stores: Stores) -> None:
        caller = await agent(stores)
        owners = await stores.agents.create(ALICE, PRIVATE)

        await check_callees(stores.agents, ALICE, [owners.id], caller=caller)
        with pytest.raises(UnknownAgentError):
            await check_callees(stores.agents, ADMIN, [owners.id], caller=caller)


class TestCycles:
    async def test_an_agent_does_not_call_itself(self, stores: Stores) -> None:
        caller = await agent(stores)

        with pytest.raises(AgentCycleError) as refused:
            await check_callees(stores.agents, ALICE, [caller.id], caller=caller)
        assert [each.field for each in refused.value.violations] == ["agent.agent_ids[0]"]

    async def test_nor_by_way_of_others(self, stores: Stores) -> None:
        caller, other = await agent(stores), await agent(stores)
        third = await agent(stores, await agent(stores, other, caller))

        with pytest.raises(AgentCycleError) as refused:
            await check_callees(stores.agents, ALICE, [other.id, third.id], caller=caller)
        assert [each.field for each in refused.value.violations] == ["agent.agent_ids[1]"]

    async def test_two_ways_to_one_agent_are_no_cycle(self, stores: Stores) -> None:
        caller, last = await agent(stores), await agent(stores)
        callees = [await agent(stores, last), await agent(stores, last), last]

        await check_callees(stores.agents, ALICE, [each.id for each in callees], caller=caller)

    async def test_cycles_that_lead_elsewhere_are_borne(self, stores: Stores) -> None:
        caller, one = await agent(stores), await agent(stores)
        other = await agent(stores, one)
        await stores.agents.update(ALICE, one.id, lambda s: replace(s, agent_ids=(other.id,)))

        await check_callees(stores.agents, ALICE, [one.id], caller=caller)
