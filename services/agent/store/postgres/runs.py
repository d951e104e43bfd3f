"""Runs in PostgreSQL as their users see them. Tenant and user are $1 and $2 of every statement.

Whoever locks both locks the session first, then the run.
"""

from collections.abc import Sequence

from services.agent.domain.endings import CANCELLED, CANCELLED_NOTICE, notice
from services.agent.domain.errors import (
    AgentDeletedError,
    QueueFullError,
    RunInProgressError,
    unknown,
)
from services.agent.domain.messages import Draft, Message, Role
from services.agent.domain.models import AgentId, RunId, SessionId
from services.agent.domain.run_models import Run, RunState, WhenBusy
from services.agent.domain.sessions import title_of
from services.agent.domain.stores import Pulse, RequestKey
from services.agent.store.postgres.ends import end_run
from services.agent.store.postgres.messages import insert_messages, take_numbers
from services.agent.store.postgres.requests import remember
from services.agent.store.postgres.rows import message_of, present, run_of
from services.common.db import Pool, PooledConnection, connection, transaction
from services.common.identity import Identity
from services.common.ids import NewId
from services.common.paging import Page

_MAX_TURN = 2**63 - 1
_MOST_TOLD = 200

_LOCK_SESSION = """
SELECT chat_session.*, EXISTS (
    SELECT FROM agent
    WHERE agent.tenant = $1 AND (agent.owner_user_id = $2 OR agent.visibility = 'tenant')
      AND agent.id = chat_session.agent_id
) AS has_agent
FROM chat_session
WHERE tenant = $1 AND user_id = $2 AND id = $3
FOR NO KEY UPDATE
"""
_UNFINISHED = """
SELECT id FROM run
WHERE tenant = $1 AND user_id = $2 AND session_id = $3 AND end_time IS NULL
ORDER BY turn LIMIT $4
"""
_INSERT = """
INSERT INTO run (
    tenant, user_id, id, session_id, agent_id, message_id, turn, state, create_time)
VALUES ($1, $2, $3, $4, $5, $6, $7, 'idle', clock_timestamp())
RETURNING *
"""
_TITLE = """
UPDATE chat_session SET title = $2 WHERE id = $1 AND title = ''
"""
_GET = "SELECT * FROM run WHERE tenant = $1 AND user_id = $2 AND id = $3"
_LOCK_SESSION_OF_RUN = """
SELECT chat_session.id FROM run
JOIN chat_session ON chat_session.id = run.session_id
WHERE run.tenant = $1 AND run.user_id = $2 AND run.id = $3
FOR NO KEY UPDATE OF chat_session
"""
_LOCK = "SELECT * FROM run WHERE tenant = $1 AND user_id = $2 AND id = $3 FOR UPDATE"
_QUESTION = """
SELECT chat_message.* FROM chat_message
JOIN run ON run.session_id = chat_message.session_id AND run.turn = chat_message.sequence
WHERE run.tenant = $1 AND run.user_id = $2 AND run.id = $3
"""
_LIST = """
SELECT * FROM run
WHERE tenant = $1 AND user_id = $2 AND session_id = $3 AND turn < $4
ORDER BY turn DESC LIMIT $5
"""
_REQUEST_CANCEL = """
UPDATE run SET cancel_requested = true
WHERE tenant = $1 AND user_id = $2 AND id = $3
RETURNING *
"""
_PULSE = """
SELECT run.*, chat_session.last_sequence
FROM chat_session
LEFT JOIN run ON run.session_id = chat_session.id AND run.turn >= $4
WHERE chat_session.tenant = $1 AND chat_session.user_id = $2 AND chat_session.id = $3
ORDER BY run.turn LIMIT $5
"""


class PostgresRunStore:
    """`RunStore` over the table `run`; the methods are explained there."""

    def __init__(self, pool: Pool, *, new_id: NewId, queue_limit: int) -> None:
        self._pool = pool
        self._new_id = new_id
        self._queue_limit = queue_limit

    async def start(
        self,
        identity: Identity,
        session_id: SessionId,
        text: str,
        *,
        when_busy: WhenBusy = WhenBusy.ENQUEUE,
        request: RequestKey | None = None,
    ) -> tuple[Run, Message]:
        run_id = RunId(self._new_id())
        async with transaction(self._pool) as lent:
            if request is not None:
                first = await remember(lent, identity, request, kind="start_run", result_id=run_id)
                if first is not None:
                    return await _started(lent, identity, RunId(first))
            agent_id = await self._admit(lent, identity, session_id, when_busy)
            key = (identity.tenant, identity.user_id, run_id, session_id, agent_id)
            return await self._accept(lent, key, session_id, text)

    async def get(self, identity: Identity, run_id: RunId) -> Run:
        async with connection(self._pool) as lent:
            row = await lent.fetchrow(_GET, identity.tenant, identity.user_id, run_id)
        if row is None:
            raise unknown("run", run_id)
        return run_of(row)

    async def list(self, identity: Identity, session_id: SessionId, page: Page) -> Sequence[Run]:
        before = int(page.after[0]) if page.after else _MAX_TURN
        key = (identity.tenant, identity.user_id, session_id, before)
        async with connection(self._pool) as lent:
            return [run_of(row) for row in await lent.fetch(_LIST, *key, page.size)]

    async def cancel(self, identity: Identity, run_id: RunId) -> Run:
        key = (identity.tenant, identity.user_id, run_id)
        async with transaction(self._pool) as lent:
            row = await lent.fetchrow(_LOCK_SESSION_OF_RUN, *key)
            row = row and await lent.fetchrow(_LOCK, *key)
            if row is None:
                raise unknown("run", run_id)
            run = run_of(row)
            if run.state.final:
                return run
            if run.state is not RunState.IDLE:
                return run_of(present(await lent.fetchrow(_REQUEST_CANCEL, *key)))
            ended, _ = await end_run(
                lent,
                run,
                CANCELLED,
                [notice(CANCELLED_NOTICE)],
                epoch=row["epoch"],
                held=False,
                new_id=self._new_id,
            )
            return ended

    async def pulse(self, identity: Identity, session_id: SessionId, *, from_turn: int) -> Pulse:
        key = (identity.tenant, identity.user_id, session_id, from_turn, _MOST_TOLD)
        async with connection(self._pool) as lent:
            rows = await lent.fetch(_PULSE, *key)
        if not rows:
            raise unknown("session", session_id)
        runs = [run_of(row) for row in rows if row["id"] is not None]
        return Pulse(rows[0]["last_sequence"], runs)

    async def _admit(
        self,
        lent: PooledConnection,
        identity: Identity,
        session_id: SessionId,
        when_busy: WhenBusy,
    ) -> AgentId:
        """Lock the session and see whether it takes another message; gives its agent."""
        key = (identity.tenant, identity.user_id, session_id)
        session = await lent.fetchrow(_LOCK_SESSION, *key)
        if session is None:
            raise unknown("session", session_id)
        agent_id = AgentId(str(session["agent_id"]))
        if not session["has_agent"]:
            raise AgentDeletedError.of(agent_id)
        unfinished = await lent.fetch(_UNFINISHED, *key, self._queue_limit)
        if unfinished and when_busy is WhenBusy.REJECT:
            raise RunInProgressError.of(str(unfinished[0]["id"]))
        if len(unfinished) >= self._queue_limit:
            raise QueueFullError.of(self._queue_limit)
        return agent_id

    async def _accept(
        self, lent: PooledConnection, key: tuple[str, ...], session_id: SessionId, text: str
    ) -> tuple[Run, Message]:
        sequence = present(await take_numbers(lent, session_id, 1))
        message_id = self._new_id()
        run = run_of(present(await lent.fetchrow(_INSERT, *key, message_id, sequence)))
        [message] = await insert_messages(
            lent, [Draft(Role.USER, text)], run=run, first=sequence, new_id=lambda: message_id
        )
        if sequence == 1:
            await lent.execute(_TITLE, session_id, title_of(text))
        return run, message


async def _started(
    lent: PooledConnection, identity: Identity, run_id: RunId
) -> tuple[Run, Message]:
    """What an earlier request started."""
    key = (identity.tenant, identity.user_id, run_id)
    row, question = await lent.fetchrow(_GET, *key), await lent.fetchrow(_QUESTION, *key)
    if row is None or question is None:
        raise unknown("run", run_id)
    return run_of(row), message_of(question)
