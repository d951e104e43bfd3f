"""How a message is accepted together with the run that will answer it: in one statement.

Whether the session takes the message is decided with its row locked, so that it holds for messages
that come at the same time too. The tenant's runs are counted without a lock: so many calls as are
under way at once may pass the tenant's limit together.
"""

from dataclasses import dataclass

from services.agent.domain.depth import Depth
from services.agent.domain.errors import unknown
from services.agent.domain.messages import Draft, Message, Role
from services.agent.domain.models import AgentId, RunId, SessionId
from services.agent.domain.run_models import Run
from services.agent.domain.stores import RequestKey
from services.agent.domain.titles import titles_of
from services.agent.store.postgres.inserts import SAY, Write, draft_columns
from services.agent.store.postgres.line import PLACE
from services.agent.store.postgres.rows import RUN, run_of
from services.agent.store.postgres.titles import title
from services.common.db import PooledConnection
from services.common.identity import Identity
from services.common.ids import NewId

_TITLE = title(tenant="$12", agent="written.agent_id", plain="$20", masked="$21")
_START = f"""
WITH locked AS MATERIALIZED (
    SELECT id, tenant, user_id, agent_id, last_sequence, unfinished, parent_run_id
    FROM chat_session
    WHERE tenant = $12 AND user_id = $13 AND id = $14
    FOR NO KEY UPDATE
), facts AS MATERIALIZED (
    SELECT
        EXISTS (
            SELECT FROM agent
            WHERE agent.tenant = locked.tenant AND agent.id = locked.agent_id
              AND (agent.owner_user_id = locked.user_id OR agent.visibility = 'tenant')
        ) AS has_agent,
        (SELECT count(*) FROM (
            SELECT FROM run WHERE tenant = $12 AND end_time IS NULL LIMIT $19
        ) AS counted) AS of_tenant
    FROM locked
), admitted AS MATERIALIZED (
    SELECT locked.*, clock_timestamp() AS moment FROM locked, facts
    WHERE has_agent AND unfinished < $18 AND of_tenant < $19 AND parent_run_id IS NULL
), remembered AS (
    INSERT INTO request (tenant, user_id, kind, id, digest, result_id)
    SELECT tenant, user_id, 'start_run', $16, $17, $15 FROM admitted WHERE $16::uuid IS NOT NULL
    ON CONFLICT DO NOTHING
    RETURNING id
), started AS (
    INSERT INTO run (
        id, session_id, tenant, user_id, agent_id, message_id, turn, state, place, create_time)
    SELECT
        $15, id, tenant, user_id, agent_id, ($1::uuid[])[1], last_sequence + 1, 'idle',
        CASE WHEN unfinished = 0 THEN {PLACE.format(tenant="$12")} END, moment
    FROM admitted WHERE $16::uuid IS NULL OR EXISTS (SELECT FROM remembered)
    RETURNING {RUN}
), written AS (
    SELECT *, turn - 1 AS last_sequence, create_time AS moment, 1 AS number FROM started
), counted AS (
    UPDATE chat_session SET
        last_sequence = written.turn, unfinished = chat_session.unfinished + 1,
        update_time = written.moment,
        title = CASE WHEN title = '' AND written.turn = 1 THEN {_TITLE} ELSE title END
    FROM written WHERE chat_session.id = written.session_id
), said AS (
    {SAY}
)
SELECT
    written.*, locked.agent_id AS with_agent, locked.unfinished, facts.has_agent, facts.of_tenant,
    locked.parent_run_id AS asked_by
FROM locked CROSS JOIN facts LEFT JOIN written ON true
"""


@dataclass(frozen=True, slots=True)
class Question:
    """A message to be accepted.

    Attributes:
        identity: whose it is.
        session_id: where it is said.
        text: what is said.
        request: makes the call safe to repeat.
    """

    identity: Identity
    session_id: SessionId
    text: str
    request: RequestKey | None


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a message was not accepted, or that it was accepted before.

    Attributes:
        agent_id: the session's.
        has_agent: whether the user sees it.
        unfinished: runs of the session.
        of_tenant: runs of the tenant, counted up to the limit.
        asked_by: in a sub-agent's session, the run that asked for it.
    """

    agent_id: AgentId
    has_agent: bool
    unfinished: int
    of_tenant: int
    asked_by: RunId | None


async def try_start(
    lent: PooledConnection, question: Question, depth: Depth, *, new_id: NewId
) -> tuple[Run, Message] | Refused:
    """Commit a message and its run, if the session takes it.

    Raises:
        NotFoundError: the user has no such session.
    """
    identity, request = question.identity, question.request
    draft, message_id = Draft(Role.USER, question.text), new_id()
    titles = titles_of(question.text)
    row = await lent.fetchrow(
        _START,
        *draft_columns([draft], [message_id]),
        [1],
        [1],
        identity.tenant,
        identity.user_id,
        question.session_id,
        new_id(),
        request and request.id,
        request and request.digest,
        depth.session,
        depth.tenant,
        titles.plain,
        titles.masked,
    )
    if row is None:
        raise unknown("session", question.session_id)
    if row["id"] is None:
        agent_id = AgentId(str(row["with_agent"]))
        asked_by = None if row["asked_by"] is None else RunId(str(row["asked_by"]))
        return Refused(agent_id, row["has_agent"], row["unfinished"], row["of_tenant"], asked_by)
    run = run_of(row)
    [message] = Write(run, 0, [draft], [message_id]).committed(row)
    return run, message
