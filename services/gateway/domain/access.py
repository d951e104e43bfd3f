"""Managing who may use ChatMind.

An admin manages the keys of their own tenant, an operator those of every tenant. Nobody can create
or revoke a key that ranks higher than their own.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from services.common.clock import Clock
from services.common.errors import InvalidArgumentError
from services.common.identity import Identity, Role
from services.common.paging import Listing, Page
from services.gateway.domain.errors import ScopeMissingError, unknown_key
from services.gateway.domain.issue import Issuer
from services.gateway.domain.models import ApiKey, IssuedKey, KeyId, NewKey, Scope
from services.gateway.domain.policy import rank, scopes_of
from services.gateway.domain.ports import KeyStore


class Access:
    """The keys that a caller may manage."""

    def __init__(
        self,
        keys: KeyStore,
        issuer: Issuer,
        *,
        forget: Callable[[KeyId], None],
        clock: Clock,
    ) -> None:
        self._keys = keys
        self._issuer = issuer
        self._forget = forget
        self._clock = clock

    async def create(self, caller: Identity, asked: NewKey) -> IssuedKey:
        """Create a key; without a tenant, in the caller's own.

        Raises:
            InvalidArgumentError: its roles do not include its scopes.
            ScopeMissingError: it is for another tenant, or its roles rank above the caller's.
        """
        asked = replace(asked, tenant=asked.tenant or caller.tenant)
        if _reach(caller) not in {None, asked.tenant}:
            raise _denied("Only an operator creates keys of another tenant.")
        _refuse_higher(caller, asked.roles)
        if beyond := asked.narrowed_to - scopes_of(asked.roles):
            names = ", ".join(sorted(scope.name for scope in beyond))
            raise InvalidArgumentError.of_field("scopes", f"not included in the roles: {names}")
        return await self._issuer.issue(asked)

    async def page(self, caller: Identity, page: Page) -> Listing[ApiKey]:
        """A page of the keys that the caller manages, oldest first; `page.after` holds an id."""
        return page.cut(await self._keys.page(page.with_one_more(), tenant=_reach(caller)))

    async def revoke(self, caller: Identity, key_id: KeyId) -> ApiKey:
        """Revoke a key; may be repeated.

        Raises:
            NotFoundError: the caller manages no such key.
            ScopeMissingError: it ranks higher than the caller's.
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
    """The tenant whose keys the caller manages; None means all tenants."""
    return None if Role.OPERATOR in caller.roles else caller.tenant


def _refuse_higher(caller: Identity, roles: Iterable[Role]) -> None:
    if rank(roles) > rank(caller.roles):
        raise _denied("The key ranks higher than your own.")


def _denied(message: str) -> ScopeMissingError:
    return ScopeMissingError(message, scope=Scope.ADMIN.name)
