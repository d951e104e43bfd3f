"""Request ids, remembered in the transaction of what they did."""

from typing import Literal

from asyncpg import Record

from services.agent.domain.stores import RequestKey
from services.common.db import PooledConnection
from services.common.errors import RequestIdReusedError
from services.common.identity import Identity

Kind = Literal["create_agent", "create_session", "start_run", "resolve_approval"]

# Waits for another transaction that is about to remember the same id.
_REMEMBER = """
INSERT INTO request (tenant, user_id, kind, id, digest, result_id)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT DO NOTHING
RETURNING true
"""
_RECALL = """
SELECT digest, result_id FROM request
WHERE tenant = $1 AND user_id = $2 AND kind = $3 AND id = $4
"""


async def remember(
    connection: PooledConnection,
    identity: Identity,
    request: RequestKey,
    *,
    kind: Kind,
    result_id: str,
) -> str | None:
    """Note that a request makes `result_id`; gives what it made before, if it came before.

    Raises:
        RequestIdReusedError: it came before with other content.
    """
    key = (identity.tenant, identity.user_id, kind, request.id)
    if await connection.fetchval(_REMEMBER, *key, request.digest, result_id):
        return None
    return _same(await connection.fetchrow(_RECALL, *key), request)


async def recall(
    connection: PooledConnection, identity: Identity, request: RequestKey, *, kind: Kind
) -> str | None:
    """What a request made before; None if it did not come before.

    Raises:
        RequestIdReusedError: it came before with other content.
    """
    key = (identity.tenant, identity.user_id, kind, request.id)
    return _same(await connection.fetchrow(_RECALL, *key), request)


def _same(row: Record | None, request: RequestKey) -> str | None:
    if row is None:
        return None
    if row["digest"] != request.digest:
        raise RequestIdReusedError(f"The request id {request.id} came before with other content.")
    return str(row["result_id"])
