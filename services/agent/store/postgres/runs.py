"""Runs in PostgreSQL as their users see them. Tenant and user are $1 and $2 of every statement."""

from collections.abc import Sequence

from services.agent.domain.depth import Depth
from services.agent.domain.errors import (
    AgentDeletedError,
    QueueFullError,
    RunInProgressError,
    SubSessionError,
    unknown,
)
from services.agent.domain.ledger import ToolCallRecord, read_position
from services.agent.domain.messages import Message
from services.agent.domain.models import RunId, SessionId
from services.agent.domain.run_models import Run, WhenBusy
from services.agent.domain.stores import RequestKey
from services.agent.store.postgres.ends import lock_session
from services.agent.store.postgres.requests import recall
from services.agent.store.postgres.retries import retry_run
from services.agent.store.postgres.rows import RUN, TOOL_CALL, message_of, run_of, tool_call_of
from services.agent.store.postgres.starts import Question, Refused, try_start
from services.agent.store.postgres.stops import cancel_held, cancel_run, interrupt_runs
from services.common.db import Pool, PooledConnection, connection, transaction
from services.common.identity import Identity
from services.common.ids import NewId
from services.common.paging import Page

_MAX_TURN = 2**63 - 1
_ANY_DEPTH = 2**31 - 1

_GET = f"SELECT {RUN} FROM run WHERE tenant = $1 AND user_id = $2 AND id = $3"
_QUESTION = """
SELECT chat_message.* FROM chat_message
JOIN run ON run.session_id = chat_message.session_id AND run.turn = chat_message.sequence
WHERE run.tenant = $1 AND run.user_id = $2 AND run.id = $3
"""
# What keeps the session busy, or did so a moment ago.
_BUSY_WITH = """
SELECT coalesce((
    SELECT id FROM run
    WHERE tenant = $1 AND user_id = $2 AND session_id = $3 AND end_time IS NULL
    ORDER BY turn LIMIT 1
), (
    SELECT id FROM run WHERE tenant = $1 AND user_id = $2 AND session_id = $3
    ORDER BY turn DESC LIMIT 1
))
"""
_LIST = f"""
SELECT {RUN} FROM run
WHERE tenant = $1 AND user_id = $2 AND session_id = $3 AND turn < $4
ORDER BY turn DESC LIMIT $5
"""
_TOOL_CALLS = f"""
SELECT {TOOL_CALL} FROM tool_call JOIN run ON run.id = tool_call.run_id
WHERE run.tenant = $1 AND run.user_id = $2 AND run.id = $3
  AND (tool_call.step, tool_call.place) > ($4, $5)
ORDER BY tool_call.step, tool_call.place LIMIT $6
"""


class PostgresRunStore:
    """`RunStore` over the table `run`; the methods are explained there."""

    def __init__(
        self, pool: Pool, *, new_id: NewId, queue_limit: int, tenant_queue_limit: int
    ) -> None:
        self._pool = pool
        self._new_id = new_id
        self._depth = Depth(queue_limit, tenant_queue_limit)

    async def start(
        self,
        identity: Identity,
        session_id: SessionId,
        text: str,
        *,
        when_busy: WhenBusy = WhenBusy.ENQUEUE,
        request: RequestKey | None = None,
    ) -> tuple[Run, Message]:
        question = Question(identity, session_id, text, request)
        most = self._depth.session if when_busy is WhenBusy.ENQUEUE else 1
        async with connection(self._pool) as lent:
            outcome = await self._try(lent, question, most)
            if not isinstance(outcome, Refused):
                return outcome
            first = await _first(lent, question)
            if first is not None:
                return first
            if outcome.asked_by is not None:
                raise SubSessionError.of(session_id, outcome.asked_by)
            if not _stops(when_busy) or not outcome.unfinished:
                raise await self._refusal(lent, question, outcome, when_busy)
        return await self._start_instead(question, discard=when_busy is WhenBusy.ROLLBACK)

    async def get(self, identity: Identity, run_id: RunId) -> Run:
        async with connection(self._pool) as lent:
            return await _get(lent, identity, run_id)

    async def list(self, identity: Identity, session_id: SessionId, page: Page) -> Sequence[Run]:
        before = int(page.after[0]) if page.after else _MAX_TURN
        key = (identity.tenant, identity.user_id, session_id, before)
        async with connection(self._pool) as lent:
            return [run_of(row) for row in await lent.fetch(_LIST, *key, page.size)]

    async def cancel(self, identity: Identity, run_id: RunId) -> Run:
        async with connection(self._pool) as lent:
            asked = await cancel_held(lent, identity, run_id)
            if asked is not None:
                return asked
        async with transaction(self._pool) as lent:
            run = await _get(lent, identity, run_id)
            if run.state.final:
                return run
            await lock_session(lent, run.session_id)
            await cancel_run(lent, identity, run_id, new_id=self._new_id)
            return await _get(lent, identity, run_id)

    async def retry(self, identity: Identity, run_id: RunId) -> Run:
        async with transaction(self._pool) as lent:
            return await retry_run(lent, identity, run_id, self._depth)

    async def tool_calls(
        self, identity: Identity, run_id: RunId, page: Page
    ) -> Sequence[ToolCallRecord]:
        after = read_position(page.after[0]) if page.after else (0, 0)
        key = (identity.tenant, identity.user_id, run_id)
        async with connection(self._pool) as lent:
            rows = await lent.fetch(_TOOL_CALLS, *key, *after, page.size)
        return [tool_call_of(row) for row in rows]

    async def _try(
        self, lent: PooledConnection, question: Question, most: int
    ) -> tuple[Run, Message] | Refused:
        depth = Depth(most, self._depth.tenant)
        return await try_start(lent, question, depth, new_id=self._new_id)

    async def _start_instead(self, question: Question, *, discard: bool) -> tuple[Run, Message]:
        """Stop the runs of the session and accept the message, or do neither."""
        identity, session_id = question.identity, question.session_id
        async with transaction(self._pool) as lent:
            await lock_session(lent, session_id)
            first = await _first(lent, question)
            if first is not None:
                return first
            await interrupt_runs(lent, identity, session_id, discard=discard, new_id=self._new_id)
            outcome = await self._try(lent, question, _ANY_DEPTH)
            if isinstance(outcome, Refused):
                raise await self._refusal(lent, question, outcome, WhenBusy.INTERRUPT)
            return outcome

    async def _refusal(
        self,
        lent: PooledConnection,
        question: Question,
        refused: Refused,
        when_busy: WhenBusy,
    ) -> Exception:
        if not refused.has_agent:
            return AgentDeletedError.of(refused.agent_id)
        if when_busy is WhenBusy.REJECT and refused.unfinished:
            identity = question.identity
            key = (identity.tenant, identity.user_id, question.session_id)
            return RunInProgressError.of(str(await lent.fetchval(_BUSY_WITH, *key)))
        if when_busy is WhenBusy.ENQUEUE and refused.unfinished >= self._depth.session:
            return QueueFullError.of(self._depth.session, scope="session")
        return QueueFullError.of(self._depth.tenant, scope="tenant")


def _stops(when_busy: WhenBusy) -> bool:
    return when_busy in {WhenBusy.INTERRUPT, WhenBusy.ROLLBACK}


async def _get(lent: PooledConnection, identity: Identity, run_id: RunId) -> Run:
    row = await lent.fetchrow(_GET, identity.tenant, identity.user_id, run_id)
    if row is None:
        raise unknown("run", run_id)
    return run_of(row)


async def _first(lent: PooledConnection, question: Question) -> tuple[Run, Message] | None:
    """What the same request started before; None where it did not come before."""
    identity, request = question.identity, question.request
    if request is None:
        return None
    run_id = await recall(lent, identity, request, kind="start_run")
    if run_id is None:
        return None
    run = await _get(lent, identity, RunId(run_id))
    row = await lent.fetchrow(_QUESTION, identity.tenant, identity.user_id, run_id)
    if row is None:
        raise unknown("run", run_id)
    return run, message_of(row)
