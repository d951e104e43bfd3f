"""On whose behalf a call is made, and the token that proves it from one service to the next.

A caller signs a short-lived token with its own Ed25519 key, for one audience. The callee trusts the
public keys of its callers only, and takes tenant and user from this token alone.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from services.common.clock import Clock
from services.common.errors import StartupError, UnauthenticatedError
from services.common.ids import new_id
from services.common.text import clean

TOKEN_SECONDS = 60
"""How long a token is valid: enough for a slow call, too short to be worth stealing."""

_REUSE_SECONDS = 20
_CLOCK_SKEW_SECONDS = 10
_MOST_CACHED = 4096
_ALGORITHM = "EdDSA"


class IdentityKeyError(StartupError):
    """A key file holds something else."""


class Role(Enum):
    """The standing of a user in a tenant."""

    VIEWER = "viewer"
    MEMBER = "member"
    ADMIN = "admin"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Identity:
    """The user on whose behalf a call is made.

    Attributes:
        tenant: the tenant whose data the call may touch.
        user_id: the user within that tenant.
        roles: the user's roles there.
    """

    tenant: str
    user_id: str
    roles: frozenset[Role] = frozenset({Role.MEMBER})

    @property
    def is_admin(self) -> bool:
        """Whether this user may change what the tenant shares."""
        return bool(self.roles & {Role.ADMIN, Role.OPERATOR})


class IdentitySigner:
    """Mints this service's tokens for one audience, reusing each for a few seconds."""

    def __init__(self, issuer: str, key: Ed25519PrivateKey, *, audience: str, clock: Clock) -> None:
        self._issuer = issuer
        self._key = key
        self._audience = audience
        self._clock = clock
        self._minted: dict[Identity, tuple[int, str]] = {}

    def token(self, identity: Identity) -> str:
        """A token for an identity, valid for at least `TOKEN_SECONDS` less the time of reuse."""
        now = int(self._clock().timestamp())
        minted = self._minted.get(identity)
        # If the clock was set back, a cached token would be from the future.
        if minted and 0 <= now - minted[0] < _REUSE_SECONDS:
            return minted[1]
        token = jwt.encode(self._claims(identity, now), self._key, algorithm=_ALGORITHM)
        if len(self._minted) >= _MOST_CACHED:
            self._minted.clear()
        self._minted[identity] = (now, token)
        return token

    def _claims(self, identity: Identity, now: int) -> dict[str, Any]:
        return {
            "iss": self._issuer,
            "aud": self._audience,
            "sub": identity.user_id,
            "tenant": identity.tenant,
            "roles": sorted(role.value for role in identity.roles),
            "iat": now,
            "exp": now + TOKEN_SECONDS,
            "jti": new_id(),
        }


class IdentityVerifier:
    """Checks tokens that the services which may call this one made for it."""

    def __init__(
        self, audience: str, issuers: Mapping[str, Ed25519PublicKey], *, clock: Clock
    ) -> None:
        self._audience = audience
        self._issuers = dict(issuers)
        self._clock = clock
        self._verified: dict[str, tuple[int, Identity]] = {}

    def identity(self, token: str) -> Identity:
        """The identity that a token proves.

        Raises:
            UnauthenticatedError: the token is not valid here; the message does not say why.
        """
        now = int(self._clock().timestamp())
        verified = self._verified.get(token)
        if verified and now < verified[0]:
            return verified[1]
        expires, identity = self._verify(token, now)
        if len(self._verified) >= _MOST_CACHED:
            self._verified.clear()
        self._verified[token] = (expires, identity)
        return identity

    def _verify(self, token: str, now: int) -> tuple[int, Identity]:
        try:
            issuer = str(jwt.decode(token, options={"verify_signature": False}).get("iss"))
            claims = jwt.decode(
                token,
                self._issuers[issuer],
                algorithms=[_ALGORITHM],
                audience=self._audience,
                issuer=issuer,
                options={
                    "require": ["iss", "aud", "sub", "exp", "iat", "tenant"],
                    "verify_exp": False,
                    "verify_iat": False,
                },
            )
            if not claims["iat"] - _CLOCK_SKEW_SECONDS <= now < claims["exp"] + _CLOCK_SKEW_SECONDS:
                raise UnauthenticatedError("The identity token is not valid now.")
            return claims["exp"], _identity(claims)
        except (jwt.InvalidTokenError, KeyError, TypeError, ValueError) as error:
            raise UnauthenticatedError(
                "The identity token is not valid for this service."
            ) from error


def _identity(claims: Mapping[str, Any]) -> Identity:
    tenant, user_id = claims["tenant"], claims["sub"]
    if not (isinstance(tenant, str) and tenant and user_id):
        raise ValueError("tenant and user must not be empty")
    if (clean(tenant), clean(user_id)) != (tenant, user_id):
        raise ValueError("tenant and user must be text that can be stored")
    # A caller of a newer release may know roles that this one does not.
    known = {role.value for role in Role}.intersection(claims.get("roles", ()))
    return Identity(tenant, user_id, frozenset(Role(role) for role in known))


def load_signing_key(path: Path) -> Ed25519PrivateKey:
    """A service's own key, from a PEM file.

    Raises:
        FileNotFoundError: the file is missing.
        IdentityKeyError: the file holds something else.
    """
    with _key_expected(path, "an Ed25519 private key"):
        key = load_pem_private_key(path.read_bytes(), password=None)
        if not isinstance(key, Ed25519PrivateKey):
            raise TypeError(type(key).__name__)
        return key


def load_trusted_keys(folder: Path, issuers: frozenset[str]) -> dict[str, Ed25519PublicKey]:
    """The public keys of the named issuers, from `<issuer>.pub` in a folder.

    Raises:
        FileNotFoundError: an issuer's key is missing.
        IdentityKeyError: a file holds something else.
    """
    return {issuer: _public_key(folder / f"{issuer}.pub") for issuer in issuers}


def _public_key(path: Path) -> Ed25519PublicKey:
    with _key_expected(path, "an Ed25519 public key"):
        key = load_pem_public_key(path.read_bytes())
        if not isinstance(key, Ed25519PublicKey):
            raise TypeError(type(key).__name__)
        return key


@contextmanager
def _key_expected(path: Path, kind: str) -> Iterator[None]:
    try:
        yield
    except (TypeError, ValueError, UnsupportedAlgorithm) as error:
        raise IdentityKeyError(f"{path} is not {kind}.") from error
