"""Whose key it is that came with a call.

What the database said of a key is held for a few seconds, so that a revoked one fails everywhere
soon. What it did not know is not held at all: a new key works at once.
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

_MOST_HELD = 10_000


class _Held:
    """What the database said of a key, and when it was asked."""

    def __init__(self, stored: StoredKey, asked: float) -> None:
        self.stored = stored
        self.asked = asked
        self.asking = asyncio.Lock()


class Authenticator:
    """Tells keys that hold from those that do not."""

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
        self._held: OrderedDict[KeyId, _Held] = OrderedDict()

    async def authenticate(self, text: str, *, source: str) -> ApiKey:
        """The key that a text is.

        Args:
            text: what came with the call.
            source: the address it came from; one that sent too many bad keys is turned away before
                the database is asked, unless the key is one that has held here before.

        Raises:
            InvalidKeyError: it is unknown, expired or revoked.
            TooManyFailuresError: the address sent too many bad keys.
            ServiceError: the database cannot tell.
        """
        credential = parse(text)
        held = self._held.get(credential.key_id) if credential else None
        if credential and held and credential.proves(held.stored.digest):
            stored = await self._fresh(held)
        else:
            stored = await self._first(credential, source)
        try:
            return self._live(stored)
        except InvalidKeyError:
            self._throttle.count_failure(source)
            raise

    async def holds(self, key: ApiKey) -> bool:
        """Whether a key that came with a call earlier still holds.

        Raises:
            ServiceError: the database cannot tell.
        """
        held = self._held.get(key.id)
        try:
            stored = await (self._fresh(held) if held else self._keys.find(key.id))
            return stored is not None and bool(self._live(stored))
        except InvalidKeyError:
            return False

    def forget(self, key_id: KeyId) -> None:
        """Ask the database at the next call with this key."""
        self._held.pop(key_id, None)

    async def _first(self, credential: Credential | None, source: str) -> StoredKey:
        if wait := self._throttle.wait(source):
            raise TooManyFailuresError(retry_after=wait)
        asked = self._monotonic()
        stored = await self._keys.find(credential.key_id) if credential else None
        if credential is None or stored is None or not credential.proves(stored.digest):
            self._throttle.count_failure(source)
            raise InvalidKeyError("The API key is not valid.")
        self._hold(stored, asked)
        return stored

    async def _fresh(self, held: _Held) -> StoredKey:
        async with held.asking:
            if self._monotonic() - held.asked >= self._hold_seconds:
                asked = self._monotonic()
                stored = await self._keys.find(held.stored.key.id)
                if stored is None:
                    self.forget(held.stored.key.id)
                    raise InvalidKeyError("The API key is not valid.")
                held.stored, held.asked = stored, asked
        return held.stored

    def _hold(self, stored: StoredKey, asked: float) -> None:
        self._held[stored.key.id] = _Held(stored, asked)
        if len(self._held) > _MOST_HELD:
            self._held.popitem(last=False)

    def _live(self, stored: StoredKey) -> ApiKey:
        """The key; only who has its secret learns that it was revoked or has expired."""
        key = stored.key
        if key.revoke_time is not None:
            self.forget(key.id)
            raise InvalidKeyError("The API key has been revoked.")
        if key.expired(self._clock()):
            self.forget(key.id)
            raise InvalidKeyError("The API key has expired.")
        return key
