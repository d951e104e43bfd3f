"""What the gateway needs from elsewhere."""

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from typing import Protocol

from services.common.identity import Identity
from services.common.paging import Page
from services.gateway.domain.messages import Accepted, Event, RunUpdate, Said
from services.gateway.domain.models import AgentId, ApiKey, KeyId, RunId, SessionId, StoredKey


class KeyStore(Protocol):
    """Keeps API keys. Where a tenant is given, another tenant's keys are as good as absent."""

    async def add(self, stored: StoredKey) -> None:
        """Keep a new key."""

    async def find(self, key_id: KeyId) -> StoredKey | None:
        """The key with this id, whoever's it is: for calls that prove themselves with it."""

    async def get(self, key_id: KeyId, *, tenant: str | None) -> ApiKey | None:
        """One key of a tenant, or of any for None."""

    async def page(self, page: Page, *, tenant: str | None) -> Sequence[ApiKey]:
        """Keys of a tenant, or of every one for None, oldest first; `page.after` holds an id."""

    async def revoke(
        self, key_id: KeyId, *, tenant: str | None, revoke_time: datetime
    ) -> ApiKey | None:
        """Revoke a key for good; one that was revoked before keeps its time. Gives it as it is."""


class KeyFile(Protocol):
    """The file that holds an administrator's key, for nobody else to read."""

    def read(self) -> str | None:
        """The key; None where there is no file.

        Raises:
            KeyFileError: what is there is not to be touched.
        """

    def write(self, key: str) -> None:
        """Put a key in its place, whole or not at all."""


class Agents(Protocol):
    """The agent service, as far as a conversation needs it. Every method acts for the identity.

    Raises:
        ServiceUnavailableError: it cannot be reached.
        ServiceError: it refuses.
    """

    async def open_session(
        self, identity: Identity, agent_id: AgentId, *, request_id: str
    ) -> SessionId:
        """Open a session with an agent; the same request id gives the same session."""

    async def start_run(self, identity: Identity, session_id: SessionId, said: Said) -> Accepted:
        """Say something in a session."""

    async def cancel_run(self, identity: Identity, run_id: RunId) -> RunUpdate:
        """Ask for a run to be stopped."""

    async def get_run(self, identity: Identity, run_id: RunId) -> RunUpdate:
        """Where a run stands."""

    async def last_sequence(self, identity: Identity, session_id: SessionId) -> int:
        """The sequence of the newest message in a session; 0 while there is none."""

    def watch(
        self, identity: Identity, session_id: SessionId, *, after: int
    ) -> AsyncGenerator[Event, None]:
        """What follows a sequence in a session, for as long as the replica asked goes on.

        After the messages that are there comes how the newest run stands, if there is one.

        Raises:
            UnavailableError, AbortedError: another watch may go on where this one ended.
        """


class Probe(Protocol):
    """Asks something that the gateway depends on for a sign of life."""

    async def check(self) -> None:
        """Return if it is well.

        Raises:
            Exception: it is not; the class says how.
        """
