"""The first administrator's key of an installation.

Whoever has access to the database may have it; no other key is needed.
"""

from services.common.clock import Clock
from services.common.identity import Role
from services.gateway.domain.issue import Issuer
from services.gateway.domain.keys import parse
from services.gateway.domain.models import ApiKey, NewKey
from services.gateway.domain.ports import KeyFile, KeyStore

_ADMINISTRATOR = NewKey(
    display_name="administrator of this installation",
    tenant="default",
    user_id="admin",
    roles=frozenset({Role.ADMIN, Role.OPERATOR}),
)


async def ensure_admin_key(
    keys: KeyStore, issuer: Issuer, file: KeyFile, *, clock: Clock
) -> ApiKey:
    """Ensure that the file holds a valid operator's key: the one it has, otherwise a new one.

    Raises:
        KeyFileError: the file holds something else, or cannot be read or written.
    """
    present = file.read()
    if present is not None and (key := await _valid_operator(keys, present, clock=clock)):
        return key
    issued = await issuer.issue(_ADMINISTRATOR)
    file.write(issued.secret)
    return issued.key


async def _valid_operator(keys: KeyStore, text: str, *, clock: Clock) -> ApiKey | None:
    credential = parse(text)
    stored = await keys.find(credential.key_id) if credential else None
    if credential is None or stored is None or not credential.proves(stored.digest):
        return None
    key = stored.key
    valid = key.revoke_time is None and not key.expired(clock())
    return key if valid and Role.OPERATOR in key.roles else None
