"""API keys in memory, for tests."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from services.common.paging import Page
from services.gateway.domain.models import ApiKey, KeyId, StoredKey


class MemoryKeyStore:
    """The port `KeyStore` in a dictionary."""

    def __init__(self) -> None:
        self._stored: dict[KeyId, StoredKey] = {}

    async def add(self, stored: StoredKey) -> None:
        """See the port."""
        self._stored[stored.key.id] = stored

    async def find(self, key_id: KeyId) -> StoredKey | None:
        """See the port."""
        return self._stored.get(key_id)

    async def get(self, key_id: KeyId, *, tenant: str | None) -> ApiKey | None:
        """See the port."""
        stored = self._stored.get(key_id)
        return stored.key if stored and tenant in {None, stored.key.tenant} else None

    async def page(self, page: Page, *, tenant: str | None) -> Sequence[ApiKey]:
        """See the port."""
        after = page.after[0] if page.after else ""
        keys = (self._stored[key_id].key for key_id in sorted(self._stored) if key_id > after)
        return [key for key in keys if tenant in {None, key.tenant}][: page.size]

    async def revoke(
        self, key_id: KeyId, *, tenant: str | None, revoke_time: datetime
    ) -> ApiKey | None:
        """See the port."""
        key = await self.get(key_id, tenant=tenant)
        if key is None:
            return None
        revoked = replace(key, revoke_time=key.revoke_time or revoke_time)
        self._stored[key_id] = replace(self._stored[key_id], key=revoked)
        return revoked
