"""Managing who may use ChatMind.

An admin manages the keys of the own tenant, an operator those of every tenant; nobody reaches keys
that stand higher than the own one, neither to make them nor to end them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from services.common.clock import Clock
from services.common.errors import InvalidArgumentError
from services.common.identity import Identity, Role
from services.common.paging import Page, PageTokens
from services.gateway.domain.errors import ScopeMissingError, unknown_key
from services.gateway.domain.issue import Issuer
from services.gateway.domain.models import ApiKey, IssuedKey, KeyId, NewKey, Scope
from services.gateway.domain.policy import rank, scopes_of
from services.gateway.domain.ports import KeyStore


@dataclass(frozen=True, slots=True)
class KeyList:
    """A page of keys, and the token of the next one; empty on the last."""

    keys: Sequence[ApiKey]
    next_page_token: str


class Access:
    """The keys that a caller may manage."""

    def __init__(
        self,
        keys: KeyStore,
        issuer: Issuer,
        *,
        tokens: PageTokens,
        forget: Callable[[KeyId], None],
        clock: Clock,
    ) -> None:
        self._keys = keys
        self._issuer = issuer
        self._tokens = tokens
        self._forget = forget
        self._clock = clock

    async def create(self, caller: Identity, asked: NewKey) -> IssuedKey:
        """Make a key; with no tenant asked for in the caller's own.

        Raises:
            InvalidArgumentError: its roles do not give its scopes.
            ScopeMissingError: for another tenant, or for roles above the caller's.
        """
        asked = replace(asked, tenant=asked.tenant or caller.tenant)
        if _reach(caller) not in {None, asked.tenant}:
            raise _denied("Keys of another tenant are made by an operator.")
        _refuse_higher(caller, asked.roles)
        if beyond := asked.narrowed_to - scopes_of(asked.roles):
            names = ", ".join(sorted(scope.name for scope in beyond))
            raise InvalidArgumentError.of_field("scopes", f"the roles do not give: {names}")
        return await self._issuer.issue(asked)

    async def page(self, caller: Identity, *, size: int, token: str) -> KeyList:
        """A page of the keys that the caller manages, oldest first.

        Raises:
            InvalidPageTokenError: the token is not one of this list.
        """
        tenant = _reach(caller)
        scope = ("api_keys", caller.tenant, caller.user_id, tenant or "")
        page = self._tokens.page(size=size, token=token, scope=scope)
        found = await self._keys.page(Page(page.size + 1, page.after), tenant=tenant)
        keys = found[: page.size]
        more = len(found) > page.size
        return KeyList(keys, self._tokens.token((keys[-1].id,), scope=scope) if more else "")

    async def revoke(self, caller: Identity, key_id: KeyId) -> ApiKey:
        """End a key; may be repeated.

        Raises:
            NotFoundError: the caller's reach holds no such key.
            ScopeMissingError: it stands higher than the caller's.
        """
        tenant = _reach(caller)
        key = await self._keys.get(key_id, tenant=tenant)
        if key is None:
            raise unknown_key(key_id)
        _refuse_higher(caller, key.roles)
        revoked = await self._keys.revoke(key_id, tenant=tenant, revoke_time=self._clock())
        if revoked is None:
            raise unknown_key(key_id)
        self._forget(key_id)
        return revoked


def _reach(caller: Identity) -> str | None:
    """The tenant whose keys the caller manages; None for every one."""
    return None if Role.OPERATOR in caller.roles else caller.tenant


def _refuse_higher(caller: Identity, roles: Iterable[Role]) -> None:
    if rank(roles) > rank(caller.roles):
        raise _denied("The key stands higher than the one that manages it.")


def _denied(message: str) -> ScopeMissingError:
    return ScopeMissingError(message, scope=Scope.ADMIN.name)
