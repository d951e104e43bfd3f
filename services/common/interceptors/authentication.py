"""Admits only calls with an identity token this service accepts; health and reflection are open."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

from services.common.errors import UnauthenticatedError
from services.common.identity import Identity, IdentityVerifier
from services.common.interceptors.base import AroundInterceptor, Call

IDENTITY_KEY = "x-chatmind-identity"
OPEN_SERVICES = ("/grpc.health.v1.Health/", "/grpc.reflection.")

_identity: ContextVar[Identity] = ContextVar("identity")


def current_identity() -> Identity:
    """Whom the call being answered is made for.

    Raises:
        UnauthenticatedError: outside of an authenticated call.
    """
    try:
        return _identity.get()
    except LookupError:
        raise UnauthenticatedError("No identity came with the call.") from None


def set_identity(identity: Identity) -> None:
    """Binds the identity to the call being answered, for interceptors that found it another way."""
    _identity.set(identity)


class AuthenticationInterceptor(AroundInterceptor):
    """Verifies the identity token of each call before any work is done."""

    def __init__(self, verifier: IdentityVerifier) -> None:
        self._verifier = verifier

    @asynccontextmanager
    async def around(self, call: Call) -> AsyncIterator[None]:
        """The call with its identity bound."""
        if not call.method.startswith(OPEN_SERVICES):
            token = call.metadata.get(IDENTITY_KEY)
            if not isinstance(token, str):
                raise UnauthenticatedError("No identity token came with the call.")
            set_identity(self._verifier.identity(token))
        yield
