"""Which agents an agent may call: those that its owner sees, and none that leads back to it.

Agents change after they were checked, two at the same time even; so their runs check again, see
`domain.sub_runs`.
"""

from collections.abc import Sequence
from typing import Final

from services.agent.domain.errors import AgentCycleError, UnknownAgentError
from services.agent.domain.models import Agent, AgentId
from services.agent.domain.stores import AgentStore
from services.common.identity import Identity

_MOST_LEVELS: Final = 16
"""How far calls are followed; runs nest far less deep than that."""


async def check_callees(
    store: AgentStore,
    identity: Identity,
    agent_ids: Sequence[AgentId],
    *,
    caller: Agent | None = None,
) -> None:
    """Check whom an agent is to be able to call.

    Args:
        store: keeps agents.
        identity: who changes the agent.
        agent_ids: the agents to be called.
        caller: the agent as it is; None where it is new, so that nothing leads to it.

    Raises:
        UnknownAgentError: its owner, or the user, does not see one of them; the field is named.
        AgentCycleError: one of them is the agent itself, or leads to it; the field is named.
    """
    if not agent_ids:
        return
    owner = identity if caller is None else Identity(caller.tenant, caller.owner_user_id)
    seen = set(await store.named(identity, agent_ids))
    if owner.user_id != identity.user_id:
        seen &= set(await store.named(owner, agent_ids))
    for place, agent_id in enumerate(agent_ids):
        if agent_id not in seen:
            raise UnknownAgentError.of(f"agent.agent_ids[{place}]", agent_id)
    for place, agent_id in enumerate(agent_ids):
        if caller is not None and await _leads_to(store, identity, agent_id, caller.id):
            raise AgentCycleError.of(f"agent.agent_ids[{place}]", agent_id)


async def _leads_to(store: AgentStore, identity: Identity, start: AgentId, end: AgentId) -> bool:
    reached, level = {start}, [start]
    for _ in range(_MOST_LEVELS):
        if end in reached:
            return True
        if not level:
            return False
        callees = await store.callees(identity, level)
        found = {agent_id for called in callees.values() for agent_id in called}
        level = sorted(found - reached)
        reached |= found
    return end in reached
