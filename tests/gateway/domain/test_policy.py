"""Who may call what."""

from datetime import UTC, datetime

import pytest

from services.common.identity import Role
from services.gateway.domain.errors import ScopeMissingError
from services.gateway.domain.models import ApiKey, KeyId, Scope
from services.gateway.domain.policy import rank, require, scope_of, scopes_of, scopes_of_key

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)


def key(*roles: Role, narrowed_to: frozenset[Scope] = frozenset()) -> ApiKey:
    """A key with these roles."""
    return ApiKey(KeyId("1"), "", "acme", "ada", frozenset(roles), narrowed_to, NOON)


class TestScopes:
    @pytest.mark.parametrize(
        ("role", "scopes"),
        [
            (Role.VIEWER, {Scope.READ}),
            (Role.MEMBER, {Scope.READ, Scope.WRITE, Scope.CHAT}),
            (Role.ADMIN, set(Scope)),
            (Role.OPERATOR, set(Scope)),
        ],
    )
    def test_roles_give_them(self, role: Role, scopes: set[Scope]) -> None:
        assert scopes == scopes_of([role])

    def test_several_roles_give_all_of_theirs_and_none_gives_nothing(self) -> None:
        assert scopes_of([Role.VIEWER, Role.ADMIN]) == set(Scope)
        assert scopes_of([]) == set()

    def test_a_key_narrows_and_never_widens(self) -> None:
        narrow = key(Role.VIEWER, narrowed_to=frozenset({Scope.READ, Scope.ADMIN}))

        assert scopes_of_key(narrow) == {Scope.READ}
        assert scopes_of_key(key(Role.VIEWER)) == {Scope.READ}


class TestRequire:
    def test_what_the_key_has_is_granted(self) -> None:
        require(key(Role.MEMBER), Scope.CHAT)

    def test_what_it_lacks_is_named(self) -> None:
        with pytest.raises(ScopeMissingError) as caught:
            require(key(Role.VIEWER), Scope.CHAT)

        assert caught.value.metadata == {"scope": "CHAT"}


class TestScopeOf:
    def test_a_served_method_has_one(self) -> None:
        assert scope_of("/chatmind.gateway.v1.GatewayService/SendMessage") is Scope.CHAT

    @pytest.mark.parametrize(
        "method", ["", "/", "SendMessage", "/chatmind.knowledge.v1.MemoryService/AddMemory"]
    )
    def test_what_is_not_served_has_none(self, method: str) -> None:
        assert scope_of(method) is None


class TestRank:
    def test_roles_stand_above_each_other(self) -> None:
        order = [Role.VIEWER, Role.MEMBER, Role.ADMIN, Role.OPERATOR]

        assert order == sorted(Role, key=lambda role: rank([role]))
        assert rank([Role.VIEWER, Role.ADMIN]) == rank([Role.ADMIN])
        assert rank([]) < rank([Role.VIEWER])
