"""API keys, and what they may be used for."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import NewType

from services.common.identity import Identity, Role

KeyId = NewType("KeyId", str)
AgentId = NewType("AgentId", str)
SessionId = NewType("SessionId", str)
RunId = NewType("RunId", str)


class Scope(Enum):
    """A part of the API that a key may use."""

    READ = "read"
    WRITE = "write"
    CHAT = "chat"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A credential, without its secret.

    Attributes:
        id: the public part; later keys have greater ids, to the millisecond.
        display_name: what it is for.
        tenant: the tenant that its calls act in.
        user_id: the user that its calls act as.
        roles: the roles of that user.
        narrowed_to: the scopes it may be used for; empty for all that its roles give.
        create_time: when it was created.
        expire_time: when it stops working, if ever.
        revoke_time: when it was revoked, if it was.
    """

    id: KeyId
    display_name: str
    tenant: str
    user_id: str
    roles: frozenset[Role]
    narrowed_to: frozenset[Scope]
    create_time: datetime
    expire_time: datetime | None = None
    revoke_time: datetime | None = None

    @property
    def identity(self) -> Identity:
        """The identity that its calls act for."""
        return Identity(self.tenant, self.user_id, self.roles)

    def expired(self, now: datetime) -> bool:
        """Whether it has expired."""
        return self.expire_time is not None and self.expire_time <= now


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key as it is stored.

    Attributes:
        key: all but the secret.
        digest: the SHA-256 of the whole secret.
    """

    key: ApiKey
    digest: bytes


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key to be created.

    Attributes:
        display_name: what it is for.
        tenant: the tenant that its calls act in.
        user_id: the user that its calls act as.
        roles: the roles of that user.
        narrowed_to: the scopes it may be used for; empty for all that its roles give.
        expire_time: when it stops working, if ever.
    """

    display_name: str
    tenant: str
    user_id: str
    roles: frozenset[Role]
    narrowed_to: frozenset[Scope] = frozenset()
    expire_time: datetime | None = None


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """A new key, at the only moment when its secret is known.

    Attributes:
        key: all but the secret.
        secret: the whole key, as clients send it; left out of `repr`.
    """

    key: ApiKey
    secret: str = field(repr=False)
