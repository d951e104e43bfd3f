"""The administrator's key of an installation."""

import pytest

from services.common.identity import Role
from services.common.ids import new_id
from services.gateway.domain.bootstrap import ensure_admin_key
from services.gateway.domain.issue import Issuer
from services.gateway.domain.keys import parse
from services.gateway.domain.models import ApiKey
from services.gateway.store.memory import MemoryKeyStore
from tests.gateway.domain.fixed import NOON, Clock, issue


class Paper:
    """A file that is none."""

    def __init__(self) -> None:
        self.text: str | None = None

    def read(self) -> str | None:
        """What stands there."""
        return self.text

    def write(self, key: str) -> None:
        """Put it there."""
        self.text = key


@pytest.fixture
def store() -> MemoryKeyStore:
    return MemoryKeyStore()


async def ensure(store: MemoryKeyStore, paper: Paper) -> ApiKey:
    """See that the paper holds a key."""
    clock = Clock().now
    issuer = Issuer(store, new_id=new_id, clock=clock)
    return await ensure_admin_key(store, issuer, paper, clock=clock)


class TestEnsureAdminKey:
    async def test_the_first_key_is_an_operators(self, store: MemoryKeyStore) -> None:
        paper = Paper()

        key = await ensure(store, paper)

        credential = parse(paper.text or "")
        assert credential is not None
        assert credential.key_id == key.id
        assert (key.tenant, key.user_id) == ("default", "admin")
        assert key.roles == {Role.ADMIN, Role.OPERATOR}
        assert key.expire_time is None

    async def test_a_key_that_works_is_kept(self, store: MemoryKeyStore) -> None:
        paper = Paper()
        first = await ensure(store, paper)
        text = paper.text

        assert first == await ensure(store, paper)
        assert text == paper.text

    async def test_a_lost_file_is_written_anew_with_another_key(
        self, store: MemoryKeyStore
    ) -> None:
        first = await ensure(store, Paper())

        assert first.id != (await ensure(store, Paper())).id

    async def test_a_key_that_does_not_work_is_replaced(self, store: MemoryKeyStore) -> None:
        revoked = await issue(store, Role.OPERATOR)
        await store.revoke(revoked.key.id, tenant=None, revoke_time=NOON)
        useless = {
            "revoked": revoked,
            "expired": await issue(store, Role.OPERATOR, expire_time=NOON),
            "of another database": await issue(MemoryKeyStore(), Role.OPERATOR),
            "no operator's": await issue(store, Role.ADMIN),
        }
        for why, issued in useless.items():
            paper = Paper()
            paper.write(issued.secret)

            assert (await ensure(store, paper)).id != issued.key.id, why
            assert paper.text != issued.secret
