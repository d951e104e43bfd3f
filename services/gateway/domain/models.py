"""Who calls: API keys and what they may be used for."""

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
        id: the public part; a key made a millisecond later has a greater one.
        display_name: what it is for.
        tenant: the tenant that its calls act in.
        user_id: the user that its calls act as.
        roles: what that user is.
        narrowed_to: what it may be used for; empty for all that its roles give.
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
        """Whom its calls are made for."""
        return Identity(self.tenant, self.user_id, self.roles)

    def expired(self, now: datetime) -> bool:
        """Whether its time is up."""
        return self.expire_time is not None and self.expire_time <= now


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key as it is kept.

    Attributes:
        key: what is known of it.
        digest: the SHA-256 of the whole secret.
    """

    key: ApiKey
    digest: bytes


@dataclass(frozen=True, slots=True)
class NewKey:
    """What somebody asks a new key to be.

    Attributes:
        display_name: what it is for.
        tenant: the tenant that its calls act in.
        user_id: the user that its calls act as.
        roles: what that user is.
        narrowed_to: what it may be used for; empty for all that its roles give.
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
    """A key at the one moment when its secret is known.

    Attributes:
        key: what is known of it.
        secret: the whole key, as it is sent; not part of any text form of this.
    """

    key: ApiKey
    secret: str = field(repr=False)
