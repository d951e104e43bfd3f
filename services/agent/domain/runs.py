"""Runs as their users start, see, stop and retry them."""

from services.agent.domain import hints
from services.agent.domain.ledger import ToolCallRecord
from services.agent.domain.messages import Message
from services.agent.domain.models import RunId, SessionId
from services.agent.domain.run_models import Run, WhenBusy
from services.agent.domain.stores import RequestKey, RunStore, SessionStore
from services.common.hints import Notifier
from services.common.identity import Identity
from services.common.paging import Listing, Page


class Runs:
    """Starts, shows, stops and retries runs; each is seen by its user alone."""

    def __init__(self, store: RunStore, *, sessions: SessionStore, notifier: Notifier) -> None:
        self._store = store
        self._sessions = sessions
        self._notifier = notifier

    async def start(
        self,
        identity: Identity,
        session_id: SessionId,
        text: str,
        *,
        when_busy: WhenBusy = WhenBusy.ENQUEUE,
        request: RequestKey | None = None,
    ) -> tuple[Run, Message]:
        """Commit a user message with the run that will answer it; see `RunStore.start`."""
        started = await self._store.start(
            identity, session_id, text, when_busy=when_busy, request=request
        )
        self._notifier.notify(session_id)
        self._notifier.notify(hints.RUNS)
        if when_busy in {WhenBusy.INTERRUPT, WhenBusy.ROLLBACK}:
            self._notifier.notify(hints.STOPS)
        return started

    async def get(self, identity: Identity, run_id: RunId) -> Run:
        """A run of the user's; NotFoundError where there is none."""
        return await self._store.get(identity, run_id)

    async def list(self, identity: Identity, session_id: SessionId, page: Page) -> Listing[Run]:
        """A session's runs, newest first.

        Raises:
            NotFoundError: the user has no such session.
        """
        await self._sessions.get(identity, session_id)
        return page.cut(await self._store.list(identity, session_id, page.with_one_more()))

    async def tool_calls(
        self, identity: Identity, run_id: RunId, page: Page
    ) -> Listing[ToolCallRecord]:
        """A run's tool calls, in the order in which the model asked for them.

        Raises:
            NotFoundError: the user has no such run.
        """
        await self._store.get(identity, run_id)
        return page.cut(await self._store.tool_calls(identity, run_id, page.with_one_more()))

    async def retry(self, identity: Identity, run_id: RunId) -> Run:
        """Put a run that ended in ERROR back in line; see `RunStore.retry`."""
        run = await self._store.retry(identity, run_id)
        self._notifier.notify(run.session_id)
        self._notifier.notify(hints.RUNS)
        return run

    async def cancel(self, identity: Identity, run_id: RunId) -> Run:
        """Ask for a run to be stopped; may be repeated, and changes nothing after the end.

        Raises:
            NotFoundError: the user has no such run.
        """
        run = await self._store.cancel(identity, run_id)
        self._notifier.notify(run.session_id)
        # Its worker has to hear of it; where none holds it, the next run may begin.
        self._notifier.notify(hints.STOPS if run.cancel_requested else hints.RUNS)
        return run
