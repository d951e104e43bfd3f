"""Request ids: what each one stood for when it came first."""

from services.common.db import PooledConnection
from services.common.errors import RequestIdReusedError
from services.common.identity import Identity
from services.knowledge.domain.models import AcceptedRequest

_FIND = """
SELECT content_digest, resource_id FROM accepted_request
WHERE tenant = $1 AND user_id = $2 AND method = $3 AND request_id = $4
"""
_RECORD = """
INSERT INTO accepted_request (tenant, user_id, method, request_id, content_digest, resource_id)
VALUES ($1, $2, $3, $4, $5, $6)
"""


async def find_request(
    connection: PooledConnection, request: AcceptedRequest, *, viewer: Identity
) -> str | None:
    """The id of what this request made before.

    Raises:
        RequestIdReusedError: the id stands for something else.
    """
    row = await connection.fetchrow(
        _FIND, viewer.tenant, viewer.user_id, request.method, request.request_id
    )
    if row is None:
        return None
    if row["content_digest"] != request.digest:
        raise RequestIdReusedError(
            f"The request id {request.request_id} came before with other content."
        )
    return str(row["resource_id"])


async def record_request(
    connection: PooledConnection, request: AcceptedRequest, resource_id: str, *, viewer: Identity
) -> None:
    """Remember what a request made, within the transaction that made it.

    Raises:
        asyncpg.UniqueViolationError: another transaction with the same id came first.
    """
    await connection.execute(
        _RECORD,
        viewer.tenant,
        viewer.user_id,
        request.method,
        request.request_id,
        request.digest,
        resource_id,
    )
