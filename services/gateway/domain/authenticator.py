"""Authenticates the API keys that come with calls.

A key that was looked up is cached for a few seconds only, so that a revoked one soon fails
everywhere. An unknown key is not cached at all, so that a new one works at once.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from services.common.clock import Clock
from services.gateway.domain.errors import InvalidKeyError, TooManyFailuresError
from services.gateway.domain.keys import Credential, parse
from services.gateway.domain.models import ApiKey, KeyId, StoredKey
from services.gateway.domain.ports import KeyStore
from services.gateway.domain.throttle import Throttle

_MOST_CACHED = 10_000


class _Cached:
    """A cached key, with the time of its lookup."""

    def __init__(self, stored: StoredKey, looked_up: float) -> None:
        self.stored = stored
        self.looked_up = looked_up
        self.refreshing = asyncio.Lock()


class Authenticator:
    """Tells valid keys from invalid ones."""

    def __init__(
        self,
        keys: KeyStore,
        throttle: Throttle,
        *,
        hold_seconds: float,
        clock: Clock,
        monotonic: Callable[[], float],
    ) -> None:
        self._keys = keys
        self._throttle = throttle
        self._hold_seconds = hold_seconds
        self._clock = clock
        self._monotonic = monotonic
        self._cache: OrderedDict[KeyId, _Cached] = OrderedDict()

    async def authenticate(self, text: str, *, source: str) -> ApiKey:
        """The key for the secret that came with a call.

        Args:
            text: the secret.
            source: the address it came from. One that sent too many bad keys is refused without a
                lookup, unless the key is cached.

        Raises:
            InvalidKeyError: the key is unknown, expired or revoked.
            TooManyFailuresError: the address sent too many bad keys.
            ServiceError: the database cannot be asked.
        """
        credential = parse(text)
        cached = self._cache.get(credential.key_id) if credential else None
        if credential and cached and credential.proves(cached.stored.digest):
            stored = await self._refreshed(cached)
        else:
            stored = await self._look_up(credential, source)
        try:
            return self._valid(stored)
        except InvalidKeyError:
            self._throttle.count_failure(source)
            raise

    async def holds(self, key: ApiKey) -> bool:
        """Whether a key that was authenticated earlier is still valid.

        Raises:
            ServiceError: the database cannot be asked.
        """
        cached = self._cache.get(key.id)
        try:
            stored = await (self._refreshed(cached) if cached else self._keys.find(key.id))
            return stored is not None and bool(self._valid(stored))
        except InvalidKeyError:
            return False

    def forget(self, key_id: KeyId) -> None:
        """Drop a key from the cache, so that the next call looks it up."""
        self._cache.pop(key_id, None)

    async def _look_up(self, credential: Credential | None, source: str) -> StoredKey:
        if wait := self._throttle.wait(source):
            raise TooManyFailuresError(retry_after=wait)
        now = self._monotonic()
        stored = await self._keys.find(credential.key_id) if credential else None
        if credential is None or stored is None or not credential.proves(stored.digest):
            self._throttle.count_failure(source)
            raise InvalidKeyError("The API key is not valid.")
        self._remember(stored, now)
        return stored

    async def _refreshed(self, cached: _Cached) -> StoredKey:
        async with cached.refreshing:
            if self._monotonic() - cached.looked_up >= self._hold_seconds:
                now = self._monotonic()
                stored = await self._keys.find(cached.stored.key.id)
                if stored is None:
                    self.forget(cached.stored.key.id)
                    raise InvalidKeyError("The API key is not valid.")
                cached.stored, cached.looked_up = stored, now
        return cached.stored

    def _remember(self, stored: StoredKey, now: float) -> None:
        self._cache[stored.key.id] = _Cached(stored, now)
        if len(self._cache) > _MOST_CACHED:
            self._cache.popitem(last=False)

    def _valid(self, stored: StoredKey) -> ApiKey:
        """The key, if it is valid; only the owner of its secret learns that it no longer is."""
        key = stored.key
        if key.revoke_time is not None:
            self.forget(key.id)
            raise InvalidKeyError("The API key has been revoked.")
        if key.expired(self._clock()):
            self.forget(key.id)
            raise InvalidKeyError("The API key has expired.")
        return key
