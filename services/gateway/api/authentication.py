"""Admits only calls with a valid API key of the needed scope; health and reflection stay open."""

from collections.abc import Mapping
from contextvars import ContextVar

import grpc
import structlog

from services.common.interceptors.authentication import set_identity
from services.common.interceptors.base import GRPC_SERVICES, AdmittingInterceptor, Call
from services.gateway.domain.authenticator import Authenticator
from services.gateway.domain.errors import InvalidKeyError, NoKeyError
from services.gateway.domain.models import ApiKey
from services.gateway.domain.policy import require, scope_of
from services.gateway.domain.throttle import source_of

_key: ContextVar[ApiKey] = ContextVar("api_key")


def current_key() -> ApiKey:
    """The key of the present call.

    Raises:
        UnauthenticatedError: outside of an authenticated call.
    """
    try:
        return _key.get()
    except LookupError:
        raise NoKeyError from None


class ApiKeyInterceptor(AdmittingInterceptor):
    """Checks the API key of each call, and that it may be used for the method."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        self._log = structlog.get_logger("authentication")

    async def admit(self, call: Call) -> None:
        """Bind the key and its identity to the call.

        Raises:
            ServiceError: the key is missing or invalid, lacks the scope, or cannot be checked.
        """
        if not call.method.startswith(GRPC_SERVICES):
            key = await self._authenticated(call)
            scope = scope_of(call.method)
            if scope is None:
                await call.context.abort(grpc.StatusCode.UNIMPLEMENTED, "No such method is served.")
            else:
                require(key, scope)
            _key.set(key)
            set_identity(key.identity)

    async def _authenticated(self, call: Call) -> ApiKey:
        source = source_of(call.context.peer())
        try:
            key = await self._authenticator.authenticate(
                credential_of(call.metadata), source=source
            )
        except InvalidKeyError as error:  # bounded for each source by the throttle
            self._log.warning("call refused", source=source, why=error.message)
            raise
        structlog.contextvars.bind_contextvars(key_id=key.id)
        return key


def credential_of(metadata: Mapping[str, str | bytes]) -> str:
    """The key in a call's metadata: `authorization: Bearer <key>`, or `x-api-key: <key>`.

    Raises:
        NoKeyError: there is none.
        InvalidKeyError: `authorization` holds something else.
    """
    authorization = metadata.get("authorization")
    if isinstance(authorization, str):
        scheme, _, credential = authorization.strip().partition(" ")
        if scheme.lower() != "bearer":
            raise InvalidKeyError('Send the API key as metadata "authorization: Bearer <key>".')
        return credential.strip()
    key = metadata.get("x-api-key")
    if isinstance(key, str):
        return key.strip()
    raise NoKeyError
