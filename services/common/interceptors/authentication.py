"""Admits only calls with a valid identity token; health and reflection stay open."""

from contextvars import ContextVar

from services.common.errors import UnauthenticatedError
from services.common.identity import Identity, IdentityVerifier
from services.common.interceptors.base import GRPC_SERVICES, AdmittingInterceptor, Call

IDENTITY_KEY = "x-chatmind-identity"

_identity: ContextVar[Identity] = ContextVar("identity")


def current_identity() -> Identity:
    """The identity on whose behalf the present call is made.

    Raises:
        UnauthenticatedError: outside of an authenticated call.
    """
    try:
        return _identity.get()
    except LookupError:
        raise UnauthenticatedError("No identity came with the call.") from None


def set_identity(identity: Identity) -> None:
    """Bind an identity to the present call, for interceptors that authenticate in another way."""
    _identity.set(identity)


class AuthenticationInterceptor(AdmittingInterceptor):
    """Verifies the identity token of each call before any work is done."""

    def __init__(self, verifier: IdentityVerifier) -> None:
        self._verifier = verifier

    async def admit(self, call: Call) -> None:
        """Bind the identity to the call.

        Raises:
            UnauthenticatedError: it has no token, or one that is not valid here.
        """
        if not call.method.startswith(GRPC_SERVICES):
            token = call.metadata.get(IDENTITY_KEY)
            if not isinstance(token, str):
                raise UnauthenticatedError("No identity token came with the call.")
            set_identity(self._verifier.identity(token))
