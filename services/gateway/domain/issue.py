"""Issues API keys."""

import secrets

from services.common.clock import Clock
from services.common.ids import NewId
from services.gateway.domain.keys import SECRET_BYTES, compose, digest_of, key_id_of
from services.gateway.domain.models import ApiKey, IssuedKey, NewKey, StoredKey
from services.gateway.domain.ports import KeyStore


class Issuer:
    """Issues keys; the caller has already checked that this is permitted."""

    def __init__(self, keys: KeyStore, *, new_id: NewId, clock: Clock) -> None:
        self._keys = keys
        self._new_id = new_id
        self._clock = clock

    async def issue(self, asked: NewKey) -> IssuedKey:
        """Create a key and store all of it but its secret."""
        key = ApiKey(
            id=key_id_of(self._new_id()),
            display_name=asked.display_name,
            tenant=asked.tenant,
            user_id=asked.user_id,
            roles=asked.roles,
            narrowed_to=asked.narrowed_to,
            create_time=self._clock(),
            expire_time=asked.expire_time,
        )
        secret = compose(key.id, secrets.token_bytes(SECRET_BYTES))
        await self._keys.add(StoredKey(key, digest_of(secret)))
        return IssuedKey(key, secret)
