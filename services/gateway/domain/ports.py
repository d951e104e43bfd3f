"""What the domain needs from outside."""

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from typing import Protocol

from services.common.identity import Identity
from services.common.paging import Page
from services.gateway.domain.messages import Accepted, Event, NewMessage, RunUpdate
from services.gateway.domain.models import AgentId, ApiKey, KeyId, RunId, SessionId, StoredKey


class KeyStore(Protocol):
    """Stores API keys. If a tenant is given, the keys of others count as absent."""

    async def add(self, stored: StoredKey) -> None:
        """Store a new key."""

    async def find(self, key_id: KeyId) -> StoredKey | None:
        """The key with this id, of any tenant: for calls that authenticate with it."""

    async def get(self, key_id: KeyId, *, tenant: str | None) -> ApiKey | None:
        """One key of a tenant; None means any tenant."""

    async def page(self, page: Page, *, tenant: str | None) -> Sequence[ApiKey]:
        """Keys of a tenant, or of all tenants for None, oldest first; `page.after` holds an id."""

    async def revoke(
        self, key_id: KeyId, *, tenant: str | None, revoke_time: datetime
    ) -> ApiKey | None:
        """Revoke a key for good and return it; an earlier revocation keeps its time."""


class KeyFile(Protocol):
    """The file that holds an administrator's key, readable by its owner only."""

    def read(self) -> str | None:
        """The key; None if there is no file.

        Raises:
            KeyFileError: the file holds something else, or cannot be read.
        """

    def write(self, key: str) -> None:
        """Write a key, whole or not at all.

        Raises:
            KeyFileError: the file cannot be written.
        """


class Agents(Protocol):
    """The part of the agent service that a conversation needs; each call acts for an identity.

    Every method raises ServiceUnavailableError if the service cannot be reached, and another
    ServiceError if it refuses.
    """

    async def open_session(
        self, identity: Identity, agent_id: AgentId, *, request_id: str
    ) -> SessionId:
        """Open a session with an agent; the same request id gives the same session."""

    async def start_run(
        self, identity: Identity, session_id: SessionId, message: NewMessage
    ) -> Accepted:
        """Send a message in a session; the same request id gives the same run."""

    async def cancel_run(self, identity: Identity, run_id: RunId) -> RunUpdate:
        """Request the cancellation of a run."""

    async def get_run(self, identity: Identity, run_id: RunId) -> RunUpdate:
        """The state of a run."""

    async def last_sequence(self, identity: Identity, session_id: SessionId) -> int:
        """The sequence of the newest message in a session; 0 if there is none."""

    def watch(
        self, identity: Identity, session_id: SessionId, *, after: int
    ) -> AsyncGenerator[Event, None]:
        """The events after a sequence in a session, for as long as the replica serves them.

        After the present messages comes the state of the newest run, if there is one.

        Raises:
            UnavailableError, AbortedError: another watch may continue where this one ended.
        """


class Probe(Protocol):
    """Checks something that the gateway depends on."""

    async def check(self) -> None:
        """Return if it works.

        Raises:
            Exception: it does not.
        """
