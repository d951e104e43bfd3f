"""What every store of API keys must do, in memory and in PostgreSQL alike."""

from datetime import UTC, datetime, timedelta

from services.common.identity import Role
from services.common.paging import Page
from services.gateway.domain.models import ApiKey, KeyId, Scope, StoredKey
from services.gateway.domain.ports import KeyStore

NOON = datetime(2026, 1, 2, 12, 0, 0, 123456, tzinfo=UTC)
LATER = NOON + timedelta(hours=1)


def stored(number: int, *, tenant: str = "acme") -> StoredKey:
    """A key whose every field says something."""
    key = ApiKey(
        id=KeyId(f"{number:032x}"),
        display_name=f"key №{number}",
        tenant=tenant,
        user_id="ada@example.com",
        roles=frozenset({Role.ADMIN, Role.OPERATOR}),
        narrowed_to=frozenset({Scope.READ}),
        create_time=NOON,
        expire_time=LATER if number % 2 else None,
    )
    return StoredKey(key, bytes([number]) * 32)


class KeyStoreContract:
    """To be inherited by a test class that has a fixture `store`."""

    async def test_a_key_is_found_as_it_was_added(self, store: KeyStore) -> None:
        for each in (stored(1), stored(2)):
            await store.add(each)

            assert each == await store.find(each.key.id)
            assert each.key == await store.get(each.key.id, tenant="acme")
            assert each.key == await store.get(each.key.id, tenant=None)

    async def test_what_was_not_added_is_not_found(self, store: KeyStore) -> None:
        nobodys = KeyId("f" * 32)

        assert await store.find(nobodys) is None
        assert await store.get(nobodys, tenant=None) is None
        assert await store.revoke(nobodys, tenant=None, revoke_time=NOON) is None

    async def test_another_tenants_key_is_as_good_as_absent(self, store: KeyStore) -> None:
        theirs = stored(1)
        await store.add(theirs)

        assert await store.get(theirs.key.id, tenant="other") is None
        assert await store.revoke(theirs.key.id, tenant="other", revoke_time=NOON) is None
        assert await store.page(Page(10), tenant="other") == []
        assert theirs == await store.find(theirs.key.id)

    async def test_pages_go_by_id(self, store: KeyStore) -> None:
        for number in (3, 10, 1, 7):
            await store.add(stored(number))
        await store.add(stored(5, tenant="other"))
        ids = {number: KeyId(f"{number:032x}") for number in range(20)}

        first = await store.page(Page(2), tenant="acme")
        rest = await store.page(Page(9, (first[-1].id,)), tenant="acme")
        every = await store.page(Page(9), tenant=None)

        assert [ids[1], ids[3]] == [key.id for key in first]
        assert [ids[7], ids[10]] == [key.id for key in rest]
        assert [ids[1], ids[3], ids[5], ids[7], ids[10]] == [key.id for key in every]

    async def test_a_revoked_key_keeps_its_first_time(self, store: KeyStore) -> None:
        key = stored(1).key
        await store.add(stored(1))

        first = await store.revoke(key.id, tenant="acme", revoke_time=NOON)
        again = await store.revoke(key.id, tenant=None, revoke_time=LATER)
        kept = await store.get(key.id, tenant="acme")

        assert first is not None
        assert first.revoke_time == NOON
        assert first == again == kept
