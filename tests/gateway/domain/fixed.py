"""Clocks that tests move, and keys."""

import itertools
from datetime import UTC, datetime, timedelta

from services.common.identity import Role
from services.common.ids import uuid7
from services.gateway.domain.issue import Issuer
from services.gateway.domain.models import IssuedKey, NewKey, Scope
from services.gateway.domain.ports import KeyStore

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)

_milliseconds = itertools.count()


class Clock:
    """The time of day and the time since the start, which tests move together."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        """The time of day."""
        return NOON + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        """Seconds since some time before."""
        return 5000 + self.seconds


def next_id() -> str:
    """An id after all before, a millisecond later each."""
    return uuid7(milliseconds=next(_milliseconds), entropy=0)


async def issue(
    store: KeyStore,
    *roles: Role,
    tenant: str = "acme",
    user_id: str = "ada",
    narrowed_to: frozenset[Scope] = frozenset(),
    expire_time: datetime | None = None,
) -> IssuedKey:
    """A new key of a store."""
    return await Issuer(store, new_id=next_id, clock=Clock().now).issue(
        NewKey("", tenant, user_id, frozenset(roles or {Role.MEMBER}), narrowed_to, expire_time)
    )
