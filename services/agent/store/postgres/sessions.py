"""Sessions in PostgreSQL. The user's tenant and id are $1 and $2 of every statement."""

from collections.abc import Sequence

from services.agent.domain.errors import SubSessionError, unknown
from services.agent.domain.models import AgentId, Session, SessionId
from services.agent.domain.stores import OWN_SESSIONS, Deleted, RequestKey, Which
from services.agent.store.postgres.memories import delete_memories
from services.agent.store.postgres.requests import remember
from services.agent.store.postgres.rows import LAST_ID, present, session_of
from services.common.db import Pool, PooledConnection, connection, transaction
from services.common.identity import Identity
from services.common.ids import NewId
from services.common.paging import Page

_DELETE_TIMEOUT = 60.0

# The agent must be one that the user sees.
_INSERT = """
INSERT INTO chat_session (
    id, tenant, user_id, agent_id, title, time_zone, create_time, update_time)
SELECT $3, $1, $2, id, $5, $6, now(), now()
FROM agent
WHERE tenant = $1 AND (owner_user_id = $2 OR visibility = 'tenant') AND id = $4
RETURNING *, NULL::uuid AS active_run_id
"""
_GET = """
SELECT chat_session.*, (
    SELECT run.id FROM run
    WHERE run.session_id = chat_session.id AND run.end_time IS NULL
    ORDER BY run.turn LIMIT 1
) AS active_run_id
FROM chat_session
WHERE tenant = $1 AND user_id = $2 AND id = $3
"""
_LIST = """
SELECT chat_session.*, (
    SELECT run.id FROM run
    WHERE run.session_id = chat_session.id AND run.end_time IS NULL
    ORDER BY run.turn LIMIT 1
) AS active_run_id
FROM chat_session
WHERE tenant = $1 AND user_id = $2 AND id < $3 {which}
ORDER BY id DESC LIMIT $4
"""
_UPDATE = """
UPDATE chat_session SET
    title = coalesce($4, title), time_zone = coalesce($5, time_zone), update_time = now()
WHERE tenant = $1 AND user_id = $2 AND id = $3
RETURNING id
"""
_LOCK = """
SELECT parent_run_id FROM chat_session
WHERE tenant = $1 AND user_id = $2 AND id = $3
FOR UPDATE
"""
# The session is locked and the user's own by now; those of sub-agents are locked from above to
# below, as wherever several are. A run that is locked asks for no more of them.
_LOCK_RUNS = "SELECT id FROM run WHERE session_id = ANY ($1::uuid[]) ORDER BY id FOR UPDATE"
_LOCK_SUBS = """
SELECT id FROM chat_session
WHERE id IN (SELECT session_id FROM run WHERE parent_run_id = ANY ($1::uuid[]))
ORDER BY id FOR UPDATE
"""
_DELETE_MESSAGES = """
WITH gone AS (DELETE FROM chat_message WHERE session_id = ANY ($1::uuid[]) RETURNING 1)
SELECT count(*) FROM gone
"""
_DELETE_CALLS = """
DELETE FROM tool_call USING run
WHERE run.session_id = ANY ($1::uuid[]) AND tool_call.run_id = run.id
"""
_DELETE_APPROVALS = "DELETE FROM approval WHERE session_id = ANY ($1)"
_DELETE_RUNS = """
WITH gone AS (DELETE FROM run WHERE session_id = ANY ($1::uuid[]) RETURNING 1)
SELECT count(*) FROM gone
"""
_DELETE = """
WITH gone AS (DELETE FROM chat_session WHERE id = ANY ($1::uuid[])) SELECT now()
"""


class PostgresSessionStore:
    """`SessionStore` over the table `chat_session`; the methods are explained there."""

    def __init__(self, pool: Pool, *, new_id: NewId) -> None:
        self._pool = pool
        self._new_id = new_id

    async def create(
        self,
        identity: Identity,
        agent_id: AgentId,
        *,
        title: str = "",
        time_zone: str = "",
        request: RequestKey | None = None,
    ) -> Session:
        session_id = SessionId(self._new_id())
        async with transaction(self._pool) as lent:
            if request is not None:
                first = await remember(
                    lent, identity, request, kind="create_session", result_id=session_id
                )
                if first is not None:
                    return await get_session(lent, identity, SessionId(first))
            row = await lent.fetchrow(
                _INSERT, identity.tenant, identity.user_id, session_id, agent_id, title, time_zone
            )
            if row is None:
                raise unknown("agent", agent_id)
            return session_of(row)

    async def get(self, identity: Identity, session_id: SessionId) -> Session:
        async with connection(self._pool) as lent:
            return await get_session(lent, identity, session_id)

    async def list(
        self, identity: Identity, page: Page, which: Which = OWN_SESSIONS
    ) -> Sequence[Session]:
        before = page.after[0] if page.after else LAST_ID
        key = (identity.tenant, identity.user_id, before, page.size)
        conditions, values = _conditions(which)
        async with connection(self._pool) as lent:
            rows = await lent.fetch(_LIST.format(which=conditions), *key, *values)
            return [session_of(row) for row in rows]

    async def update(
        self,
        identity: Identity,
        session_id: SessionId,
        *,
        title: str | None = None,
        time_zone: str | None = None,
    ) -> Session:
        key = (identity.tenant, identity.user_id, session_id)
        async with transaction(self._pool) as lent:
            await lent.execute(_UPDATE, *key, title, time_zone)
            return await get_session(lent, identity, session_id)

    async def delete(self, identity: Identity, session_id: SessionId) -> Deleted:
        async with transaction(self._pool, statement_timeout=_DELETE_TIMEOUT) as lent:
            key = (identity.tenant, identity.user_id, session_id)
            locked = await lent.fetchrow(_LOCK, *key)
            if locked is None:
                raise unknown("session", session_id)
            if locked["parent_run_id"] is not None:
                raise SubSessionError.of(session_id, str(locked["parent_run_id"]))
            ids = await _with_subs(lent, session_id)
            messages = await lent.fetchval(_DELETE_MESSAGES, ids, timeout=_DELETE_TIMEOUT)
            await lent.execute(_DELETE_CALLS, ids, timeout=_DELETE_TIMEOUT)
            await lent.execute(_DELETE_APPROVALS, ids, timeout=_DELETE_TIMEOUT)
            runs = await lent.fetchval(_DELETE_RUNS, ids, timeout=_DELETE_TIMEOUT)
            await delete_memories(lent, ids)
            time = present(await lent.fetchrow(_DELETE, ids, timeout=_DELETE_TIMEOUT))[0]
            return Deleted(messages, runs, time)


async def _with_subs(lent: PooledConnection, session_id: SessionId) -> list[str]:
    """A session that is locked and those of its sub-agents, and of theirs, which are then."""
    ids, level = list[str](), [str(session_id)]
    while level:
        ids += level
        runs = [row["id"] for row in await lent.fetch(_LOCK_RUNS, level, timeout=_DELETE_TIMEOUT)]
        level = [str(row["id"]) for row in await lent.fetch(_LOCK_SUBS, runs)]
    return ids


def _conditions(which: Which) -> tuple[str, list[str]]:
    """What a list keeps, besides the user's, from $5 on."""
    conditions, values = list[str](), list[str]()
    if which.agent_id is not None:
        values.append(which.agent_id)
        conditions.append(f"AND agent_id = ${4 + len(values)}")
    if which.parent_run_id is not None:
        values.append(which.parent_run_id)
        asked = f"SELECT session_id FROM run WHERE parent_run_id = ${4 + len(values)}"
        conditions.append(f"AND id IN ({asked})")
    elif not which.sub_sessions:
        conditions.append("AND parent_run_id IS NULL")
    return " ".join(conditions), values


async def get_session(lent: PooledConnection, identity: Identity, session_id: SessionId) -> Session:
    """A session of the user's.

    Raises:
        NotFoundError: the user has no such session.
    """
    row = await lent.fetchrow(_GET, identity.tenant, identity.user_id, session_id)
    if row is None:
        raise unknown("session", session_id)
    return session_of(row)
