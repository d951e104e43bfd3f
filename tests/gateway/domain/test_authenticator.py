"""Whose key it is, how long that is held, and who is turned away."""

import asyncio
from datetime import timedelta

import pytest

from services.common.errors import UnavailableError
from services.gateway.domain.authenticator import Authenticator
from services.gateway.domain.errors import InvalidKeyError, TooManyFailuresError
from services.gateway.domain.keys import compose, digest_of
from services.gateway.domain.models import KeyId, StoredKey
from services.gateway.domain.throttle import Throttle
from services.gateway.store.memory import MemoryKeyStore
from tests.gateway.domain.fixed import NOON, Clock, issue

HERE = "10.0.0.7"


class CountingStore(MemoryKeyStore):
    """A store that counts how often it is asked, and can be away."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.away = False

    async def find(self, key_id: KeyId) -> StoredKey | None:
        """The key with this id, after a moment."""
        self.asked += 1
        await asyncio.sleep(0)
        if self.away:
            raise UnavailableError("away")
        return await super().find(key_id)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
def authenticator(store: CountingStore, clock: Clock) -> Authenticator:
    throttle = Throttle(burst=3, per_minute=6, monotonic=clock.monotonic)
    return Authenticator(
        store, throttle, hold_seconds=3, clock=clock.now, monotonic=clock.monotonic
    )


class TestAuthenticate:
    async def test_a_key_that_holds_is_told(
        self, authenticator: Authenticator, store: CountingStore
    ) -> None:
        issued = await issue(store)

        assert issued.key == await authenticator.authenticate(issued.secret, source=HERE)

    async def test_the_database_is_asked_once_in_a_while(
        self, authenticator: Authenticator, store: CountingStore, clock: Clock
    ) -> None:
        issued = await issue(store)
        for _ in range(5):
            await authenticator.authenticate(issued.secret, source=HERE)
        assert store.asked == 1

        clock.seconds += 3
        async with asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(authenticator.authenticate(issued.secret, source=HERE))

        assert store.asked == 2

    async def test_a_revoked_key_fails_once_that_is_over(
        self, authenticator: Authenticator, store: CountingStore, clock: Clock
    ) -> None:
        issued = await issue(store)
        await authenticator.authenticate(issued.secret, source=HERE)
        await store.revoke(issued.key.id, tenant=None, revoke_time=NOON)
        await authenticator.authenticate(issued.secret, source=HERE)
        clock.seconds += 3

        with pytest.raises(InvalidKeyError, match="revoked"):
            await authenticator.authenticate(issued.secret, source=HERE)

    async def test_a_forgotten_key_is_asked_for_at_once(
        self, authenticator: Authenticator, store: CountingStore
    ) -> None:
        issued = await issue(store)
        await authenticator.authenticate(issued.secret, source=HERE)
        await store.revoke(issued.key.id, tenant=None, revoke_time=NOON)
        authenticator.forget(issued.key.id)

        with pytest.raises(InvalidKeyError, match="revoked"):
            await authenticator.authenticate(issued.secret, source=HERE)

    async def test_a_key_expires_to_the_second_even_while_it_is_held(
        self, authenticator: Authenticator, store: CountingStore, clock: Clock
    ) -> None:
        issued = await issue(store, expire_time=NOON + timedelta(seconds=1))
        await authenticator.authenticate(issued.secret, source=HERE)
        clock.seconds += 1

        with pytest.raises(InvalidKeyError, match="expired"):
            await authenticator.authenticate(issued.secret, source=HERE)

    async def test_a_new_key_works_at_once_though_it_was_tried_before(
        self, authenticator: Authenticator, store: CountingStore
    ) -> None:
        issued = await issue(MemoryKeyStore())
        with pytest.raises(InvalidKeyError):
            await authenticator.authenticate(issued.secret, source=HERE)
        await store.add(StoredKey(issued.key, digest_of(issued.secret)))

        assert issued.key == await authenticator.authenticate(issued.secret, source=HERE)

    async def test_the_id_of_a_known_key_does_not_help(
        self, authenticator: Authenticator, store: CountingStore
    ) -> None:
        issued = await issue(store)
        await authenticator.authenticate(issued.secret, source=HERE)

        with pytest.raises(InvalidKeyError, match="not valid"):
            await authenticator.authenticate(compose(issued.key.id, bytes(32)), source=HERE)

    async def test_what_is_no_key_does_not_reach_the_database(
        self, authenticator: Authenticator, store: CountingStore
    ) -> None:
        with pytest.raises(InvalidKeyError):
            await authenticator.authenticate("nonsense", source=HERE)

        assert store.asked == 0

    async def test_a_database_that_is_away_opens_no_door(
        self, authenticator: Authenticator, store: CountingStore, clock: Clock
    ) -> None:
        issued = await issue(store)
        await authenticator.authenticate(issued.secret, source=HERE)
        store.away = True
        await authenticator.authenticate(issued.secret, source=HERE)
        clock.seconds += 3

        with pytest.raises(UnavailableError):
            await authenticator.authenticate(issued.secret, source=HERE)


class TestThrottling:
    async def test_an_address_with_too_many_bad_keys_is_not_listened_to(
        self, authenticator: Authenticator, store: CountingStore, clock: Clock
    ) -> None:
        issued = await issue(store)
        for _ in range(3):
            with pytest.raises(InvalidKeyError):
                await authenticator.authenticate("nonsense", source=HERE)

        with pytest.raises(TooManyFailuresError) as caught:
            await authenticator.authenticate(issued.secret, source=HERE)

        assert caught.value.retry_after == pytest.approx(10)
        assert store.asked == 0
        assert issued.key == await authenticator.authenticate(issued.secret, source="10.0.0.8")
        clock.seconds += 10
        assert issued.key == await authenticator.authenticate(issued.secret, source=HERE)

    async def test_a_key_that_held_there_before_is(
        self, authenticator: Authenticator, store: CountingStore, clock: Clock
    ) -> None:
        issued = await issue(store)
        await authenticator.authenticate(issued.secret, source=HERE)
        for _ in range(3):
            with pytest.raises(InvalidKeyError):
                await authenticator.authenticate("nonsense", source=HERE)
        clock.seconds += 3

        assert issued.key == await authenticator.authenticate(issued.secret, source=HERE)

    async def test_a_revoked_key_counts_as_bad(
        self, authenticator: Authenticator, store: CountingStore
    ) -> None:
        issued = await issue(store)
        await store.revoke(issued.key.id, tenant=None, revoke_time=NOON)
        for _ in range(3):
            with pytest.raises(InvalidKeyError):
                await authenticator.authenticate(issued.secret, source=HERE)

        with pytest.raises(TooManyFailuresError):
            await authenticator.authenticate(issued.secret, source=HERE)


class TestHolds:
    async def test_a_key_holds_until_it_is_revoked_or_expires(
        self, authenticator: Authenticator, store: CountingStore, clock: Clock
    ) -> None:
        revoked = await issue(store)
        expiring = await issue(store, expire_time=NOON + timedelta(seconds=2))
        await authenticator.authenticate(revoked.secret, source=HERE)

        assert await authenticator.holds(revoked.key)
        assert await authenticator.holds(expiring.key)
        await store.revoke(revoked.key.id, tenant=None, revoke_time=NOON)
        clock.seconds += 3
        assert not await authenticator.holds(revoked.key)
        assert not await authenticator.holds(expiring.key)

    async def test_a_key_that_is_gone_does_not_hold(
        self, authenticator: Authenticator, store: CountingStore, clock: Clock
    ) -> None:
        issued = await issue(store)
        await authenticator.authenticate(issued.secret, source=HERE)
        store._stored.clear()
        clock.seconds += 3

        assert not await authenticator.holds(issued.key)
        assert not await authenticator.holds(issued.key)
