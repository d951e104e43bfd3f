"""Who manages which keys."""

import pytest

from services.common.errors import InvalidArgumentError, NotFoundError
from services.common.identity import Identity, Role
from services.common.ids import new_id
from services.common.paging import Page
from services.gateway.domain.access import Access
from services.gateway.domain.errors import ScopeMissingError
from services.gateway.domain.issue import Issuer
from services.gateway.domain.models import KeyId, NewKey, Scope
from services.gateway.store.memory import MemoryKeyStore
from tests.gateway.domain.fixed import NOON, Clock, issue

ADMIN = Identity("acme", "ada", frozenset({Role.ADMIN}))
OPERATOR = Identity("default", "root", frozenset({Role.OPERATOR}))


def asked(*roles: Role, tenant: str = "", narrowed_to: frozenset[Scope] = frozenset()) -> NewKey:
    """What a key is asked to be."""
    return NewKey("", tenant, "bob", frozenset(roles), narrowed_to)


@pytest.fixture
def store() -> MemoryKeyStore:
    return MemoryKeyStore()


@pytest.fixture
def forgotten() -> list[KeyId]:
    return []


@pytest.fixture
def access(store: MemoryKeyStore, forgotten: list[KeyId]) -> Access:
    clock = Clock().now
    return Access(
        store,
        Issuer(store, new_id=new_id, clock=clock),
        forget=forgotten.append,
        clock=clock,
    )


class TestCreate:
    async def test_a_key_is_of_the_callers_tenant(
        self, access: Access, store: MemoryKeyStore
    ) -> None:
        issued = await access.create(ADMIN, asked(Role.MEMBER))

        stored = await store.find(issued.key.id)
        assert stored is not None
        assert issued.key == stored.key
        assert (issued.key.tenant, issued.key.user_id) == ("acme", "bob")
        assert issued.key.create_time == NOON
        assert issued.secret not in repr(issued) + repr(stored)

    async def test_another_tenants_are_an_operators_business(self, access: Access) -> None:
        with pytest.raises(ScopeMissingError):
            await access.create(ADMIN, asked(Role.MEMBER, tenant="other"))

        issued = await access.create(OPERATOR, asked(Role.MEMBER, tenant="other"))
        assert issued.key.tenant == "other"

    async def test_nobody_grants_more_than_the_own_rank(self, access: Access) -> None:
        await access.create(ADMIN, asked(Role.ADMIN, Role.VIEWER))
        await access.create(OPERATOR, asked(Role.OPERATOR))

        with pytest.raises(ScopeMissingError) as caught:
            await access.create(ADMIN, asked(Role.VIEWER, Role.OPERATOR))
        assert caught.value.metadata == {"scope": "ADMIN"}

    async def test_scopes_that_the_roles_do_not_give_are_refused(self, access: Access) -> None:
        with pytest.raises(InvalidArgumentError, match="scopes: not included in the roles: ADMIN"):
            await access.create(ADMIN, asked(Role.VIEWER, narrowed_to=frozenset(Scope)))


class TestPage:
    async def test_pages_follow_each_other(self, access: Access, store: MemoryKeyStore) -> None:
        made = [(await issue(store)).key for _ in range(5)]
        await issue(store, tenant="other")

        first = await access.page(ADMIN, Page(3))
        second = await access.page(ADMIN, Page(3, (first.items[-1].id,)))

        assert made == [*first.items, *second.items]
        assert (first.more, second.more) == (True, False)

    async def test_a_full_last_page_promises_no_further_one(
        self, access: Access, store: MemoryKeyStore
    ) -> None:
        await issue(store)

        assert not (await access.page(ADMIN, Page(1))).more

    async def test_an_operator_sees_every_tenants(
        self, access: Access, store: MemoryKeyStore
    ) -> None:
        made = [(await issue(store, tenant=tenant)).key for tenant in ("a", "b")]

        assert made == (await access.page(OPERATOR, Page())).items


class TestRevoke:
    async def test_a_key_is_ended_and_forgotten_here(
        self, access: Access, store: MemoryKeyStore, forgotten: list[KeyId]
    ) -> None:
        issued = await issue(store)

        revoked = await access.revoke(ADMIN, issued.key.id)

        assert revoked.revoke_time == NOON
        assert [issued.key.id] == forgotten

    async def test_a_foreign_key_reads_like_an_unknown_one(
        self, access: Access, store: MemoryKeyStore
    ) -> None:
        theirs = (await issue(store, tenant="other")).key.id
        texts = []
        for key_id in (theirs, KeyId("0" * 32)):
            with pytest.raises(NotFoundError) as caught:
                await access.revoke(ADMIN, key_id)
            assert caught.value.metadata == {"resource": "api_key", "id": key_id}
            texts.append(caught.value.message.replace(key_id, "ID"))

        assert texts == ["No API key ID."] * 2
        stored = await store.find(theirs)
        assert stored is not None
        assert stored.key.revoke_time is None

    async def test_a_higher_key_is_out_of_reach(
        self, access: Access, store: MemoryKeyStore
    ) -> None:
        higher = await issue(store, Role.OPERATOR)

        with pytest.raises(ScopeMissingError):
            await access.revoke(ADMIN, higher.key.id)
        assert (await access.revoke(OPERATOR, higher.key.id)).revoke_time == NOON
