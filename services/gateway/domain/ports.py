"""What the domain needs from outside."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from services.common.identity import Identity
from services.common.paging import Page
from services.gateway.domain.messages import Accepted, NewMessage, RunUpdate, Told
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

    async def last_sequence(self, identity: Identity, session_id: SessionId) -> int:
        """The sequence of the newest message in a session; 0 if there is none."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a watch begins, or goes on after a break.

    Attributes:
        after: the last sequence that is known.
        open_runs: the runs of which it is known that they had not ended.
    """

    after: int
    open_runs: Sequence[RunId] = ()


class Watched(Protocol):
    """A session that is watched on behalf of one client; no method blocks."""

    identity: Identity
    session_id: SessionId

    def resume(self) -> Place:
        """Where its watch begins, or goes on."""

    def tell(self, event: Told) -> bool:
        """Take an event; False if there is no room, which ends the watch."""

    def fail(self, error: Exception) -> None:
        """Be told that the watch has ended for good."""


class Watches(Protocol):
    """Watches sessions, across whatever interrupts it.

    A watch tells the messages after its place; then the state of every run that is going on, of the
    newest one, and of those that were open; and then what follows. After a break it goes on at the
    place where its session is by then. It fails where the agent service refuses it, or stays away.
    """

    def begin(self, watched: Watched) -> None:
        """Watch a session."""

    def end(self, watched: Watched) -> None:
        """Watch it no more; nothing happens if that has ended already."""


class Probe(Protocol):
    """Checks something that the gateway depends on."""

    async def check(self) -> None:
        """Return if it works.

        Raises:
            Exception: it does not.
        """
