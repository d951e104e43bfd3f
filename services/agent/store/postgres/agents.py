"""Agents in PostgreSQL. The user's tenant and id are $1 and $2 of every statement."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from services.agent.domain.access import check_may_change
from services.agent.domain.errors import unknown
from services.agent.domain.models import Agent, AgentId, AgentSettings
from services.agent.domain.stores import RequestKey
from services.agent.store.codec import (
    approvals_to_json,
    bindings_to_json,
    hooks_to_json,
    limits_to_json,
    options_to_json,
    retrieval_to_json,
    window_to_json,
)
from services.agent.store.postgres.requests import recall, remember
from services.agent.store.postgres.rows import FIRST_ID, agent_of, present
from services.common.db import Pool, PooledConnection, connection, transaction
from services.common.identity import Identity
from services.common.ids import NewId
from services.common.paging import Page

_INSERT = """
INSERT INTO agent (
    id, tenant, owner_user_id, create_time, update_time,
    display_name, description, system_prompt, model, options, tools, knowledge_base_ids,
    retrieval, limits, context_window, visibility, agent_ids, hooks, mcp_servers, time_zone,
    approvals)
VALUES (
    $3, $1, $2, now(), now(), $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
    $18, $19)
RETURNING *
"""
_GET = """
SELECT * FROM agent
WHERE tenant = $1 AND (owner_user_id = $2 OR visibility = 'tenant') AND id = $3
"""
_LOCK = """
SELECT * FROM agent
WHERE tenant = $1 AND (owner_user_id = $2 OR visibility = 'tenant') AND id = $3
FOR UPDATE
"""
_LIST = """
(SELECT * FROM agent
 WHERE tenant = $1 AND owner_user_id = $2 AND id > $3
 ORDER BY id LIMIT $4)
UNION ALL
(SELECT * FROM agent
 WHERE tenant = $1 AND owner_user_id <> $2 AND visibility = 'tenant' AND id > $3
 ORDER BY id LIMIT $4)
ORDER BY id LIMIT $4
"""
_LIST_OF_NAME = """
SELECT * FROM agent
WHERE tenant = $1 AND (owner_user_id = $2 OR visibility = 'tenant') AND id > $3
  AND display_name = $5
ORDER BY id LIMIT $4
"""
_NAMED = """
SELECT * FROM agent
WHERE tenant = $1 AND (owner_user_id = $2 OR visibility = 'tenant') AND id = ANY ($3::uuid[])
"""
_CALLEES = "SELECT id, agent_ids FROM agent WHERE tenant = $1 AND id = ANY ($2::uuid[])"
_UPDATE = """
UPDATE agent SET
    update_time = now(), display_name = $4, description = $5, system_prompt = $6, model = $7,
    options = $8, tools = $9, knowledge_base_ids = $10, retrieval = $11, limits = $12,
    context_window = $13, visibility = $14, agent_ids = $15, hooks = $16, mcp_servers = $17,
    time_zone = $18, approvals = $19
WHERE tenant = $1 AND (owner_user_id = $2 OR visibility = 'tenant') AND id = $3
RETURNING *
"""
_DELETE = """
DELETE FROM agent
WHERE tenant = $1 AND (owner_user_id = $2 OR visibility = 'tenant') AND id = $3
RETURNING now() AS delete_time
"""


class PostgresAgentStore:
    """`AgentStore` over the table `agent`; the methods are explained there."""

    def __init__(self, pool: Pool, *, new_id: NewId) -> None:
        self._pool = pool
        self._new_id = new_id

    async def create(
        self, identity: Identity, settings: AgentSettings, *, request: RequestKey | None = None
    ) -> Agent:
        agent_id = AgentId(self._new_id())
        key = (identity.tenant, identity.user_id, agent_id)
        async with transaction(self._pool) as lent:
            if request is not None:
                first = await remember(
                    lent, identity, request, kind="create_agent", result_id=agent_id
                )
                if first is not None:
                    return await _get(lent, identity, AgentId(first))
            return agent_of(present(await lent.fetchrow(_INSERT, *key, *_columns(settings))))

    async def created(self, identity: Identity, request: RequestKey) -> Agent | None:
        async with connection(self._pool) as lent:
            first = await recall(lent, identity, request, kind="create_agent")
            return None if first is None else await _get(lent, identity, AgentId(first))

    async def get(self, identity: Identity, agent_id: AgentId) -> Agent:
        async with connection(self._pool) as lent:
            return await _get(lent, identity, agent_id)

    async def list(
        self, identity: Identity, page: Page, *, display_name: str = ""
    ) -> Sequence[Agent]:
        after = page.after[0] if page.after else FIRST_ID
        key = (identity.tenant, identity.user_id, after, page.size)
        async with connection(self._pool) as lent:
            if display_name:
                rows = await lent.fetch(_LIST_OF_NAME, *key, display_name)
            else:
                rows = await lent.fetch(_LIST, *key)
            return [agent_of(row) for row in rows]

    async def named(
        self, identity: Identity, agent_ids: Sequence[AgentId]
    ) -> Mapping[AgentId, Agent]:
        async with connection(self._pool) as lent:
            rows = await lent.fetch(_NAMED, identity.tenant, identity.user_id, agent_ids)
        agents = [agent_of(row) for row in rows]
        return {agent.id: agent for agent in agents}

    async def callees(
        self, identity: Identity, agent_ids: Sequence[AgentId]
    ) -> Mapping[AgentId, tuple[AgentId, ...]]:
        async with connection(self._pool) as lent:
            rows = await lent.fetch(_CALLEES, identity.tenant, agent_ids)
        return {
            AgentId(str(row["id"])): tuple(AgentId(str(each)) for each in row["agent_ids"])
            for row in rows
        }

    async def update(
        self,
        identity: Identity,
        agent_id: AgentId,
        change: Callable[[AgentSettings], AgentSettings],
    ) -> Agent:
        key = (identity.tenant, identity.user_id, agent_id)
        async with transaction(self._pool) as lent:
            agent = await _changeable(lent, identity, agent_id)
            columns = _columns(change(agent.settings))
            return agent_of(present(await lent.fetchrow(_UPDATE, *key, *columns)))

    async def delete(self, identity: Identity, agent_id: AgentId) -> datetime:
        key = (identity.tenant, identity.user_id, agent_id)
        async with transaction(self._pool) as lent:
            await _changeable(lent, identity, agent_id)
            row = present(await lent.fetchrow(_DELETE, *key))
            time: datetime = row["delete_time"]
            return time


async def _get(lent: PooledConnection, identity: Identity, agent_id: AgentId) -> Agent:
    row = await lent.fetchrow(_GET, identity.tenant, identity.user_id, agent_id)
    if row is None:
        raise unknown("agent", agent_id)
    return agent_of(row)


async def _changeable(lent: PooledConnection, identity: Identity, agent_id: AgentId) -> Agent:
    """The agent, locked, if the user may change it."""
    row = await lent.fetchrow(_LOCK, identity.tenant, identity.user_id, agent_id)
    if row is None:
        raise unknown("agent", agent_id)
    agent = agent_of(row)
    check_may_change(identity, agent)
    return agent


def _columns(settings: AgentSettings) -> tuple[object, ...]:
    return (
        settings.display_name,
        settings.description,
        settings.system_prompt,
        settings.model,
        options_to_json(settings.options),
        settings.tools,
        settings.knowledge_base_ids,
        retrieval_to_json(settings.retrieval),
        limits_to_json(settings.limits),
        window_to_json(settings.window),
        settings.visibility.value,
        settings.agent_ids,
        hooks_to_json(settings.hooks),
        bindings_to_json(settings.mcp_servers),
        settings.time_zone,
        approvals_to_json(settings.approvals),
    )
