from dataclasses import replace

import pytest

from services.agent.domain.chat import RunContext
from services.agent.domain.models import Agent, AgentId, RunId, RunLimits
from services.agent.domain.run_models import Parent
from services.agent.domain.sub_runs import MAX_DEPTH
from services.agent.domain.tools.agent_tools import AgentTools
from services.common.ids import new_id
from tests.agent.turns import Scene, ScriptedModel
from tests.contracts.agent_stores import ALICE, BOB, PRIVATE, SHARED, Stores, memory_stores


@pytest.fixture
def stores() -> Stores:
    return memory_stores()


def context(caller: Agent, *callers: AgentId) -> RunContext:
    """A run of an agent, below others that wait for it."""
    scene = Scene(ScriptedModel()).context()
    parent = Parent(RunId("r0"), "k", callers, RunLimits()) if callers else None
    run = replace(scene.run, agent_id=caller.id, parent=parent)
    return replace(scene, run=run, agent=caller, identity=ALICE)


async def names(stores: Stores, asking: RunContext) -> list[str]:
    return list((await AgentTools(stores.agents).supply(asking)).tools)


async def test_there_is_a_tool_for_each_agent_in_their_order(stores: Stores) -> None:
    callees = [
        await stores.agents.create(ALICE, replace(PRIVATE, display_name=name))
        for name in ("Writer", "Researcher")
    ]
    ids = tuple(callee.id for callee in callees)
    caller = await stores.agents.create(ALICE, replace(PRIVATE, agent_ids=ids))

    supply = await AgentTools(stores.agents).supply(context(caller))

    assert list(supply.tools) == ["ask_writer", "ask_researcher"]
    assert [name for name, tool in supply.tools.items() if tool.spec.name != name] == []


async def test_what_the_user_does_not_see_is_left_out(stores: Stores) -> None:
    hidden, seen = [await stores.agents.create(BOB, each) for each in (PRIVATE, SHARED)]
    ids = (hidden.id, AgentId(new_id()), seen.id)
    caller = await stores.agents.create(BOB, replace(SHARED, agent_ids=ids))

    assert await names(stores, context(caller)) == ["ask_shared"]


async def test_an_agent_that_waits_for_the_run_is_not_asked_by_it(stores: Stores) -> None:
    """As two that were changed at the same time could lead to one another."""
    first = await stores.agents.create(ALICE, replace(PRIVATE, display_name="First"))
    second = await stores.agents.create(ALICE, replace(PRIVATE, agent_ids=(first.id,)))
    looped = await stores.agents.update(
        ALICE, first.id, lambda kept: replace(kept, agent_ids=(second.id, first.id))
    )

    assert await names(stores, context(looped)) == ["ask_private"]
    assert await names(stores, context(second)) == ["ask_first"]
    assert await names(stores, context(second, first.id)) == []


async def test_at_the_lowest_level_nobody_is_asked(stores: Stores) -> None:
    callee = await stores.agents.create(ALICE, SHARED)
    caller = await stores.agents.create(ALICE, replace(PRIVATE, agent_ids=(callee.id,)))
    above = [AgentId(new_id()) for _ in range(MAX_DEPTH)]

    assert await names(stores, context(caller, *above[1:])) == ["ask_shared"]
    assert await names(stores, context(caller, *above)) == []
