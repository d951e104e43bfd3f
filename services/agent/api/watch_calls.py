"""Calls that watch: one session, or very many on behalf of their users."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from chatmind.agent.v1 import run_service_pb2 as pb

from services.agent.api.convert.watches import from_event, from_told
from services.agent.domain.errors import SlowConsumerError
from services.agent.domain.models import RunId, SessionId
from services.agent.domain.watch.watch import Watch
from services.agent.domain.watch.watching import Watching
from services.common.convert import canonical_id
from services.common.errors import UnauthenticatedError
from services.common.identity import Identity, IdentityVerifier
from services.common.interceptors.base import Context
from services.common.tasks import task_group


class WatchCalls:
    """Writes to callers what happens in sessions, at the pace at which they read."""

    def __init__(
        self, watch: Watch, verifier: IdentityVerifier, *, domain: str, write_seconds: float = 30.0
    ) -> None:
        """Watch for callers.

        Args:
            watch: watches sessions.
            verifier: checks on whose behalf each of many watches is.
            domain: of the errors that end one of many watches.
            write_seconds: how long a caller may take to make room for a response.
        """
        self._watch = watch
        self._verifier = verifier
        self._domain = domain
        self._write_seconds = write_seconds

    async def one(
        self, identity: Identity, request: pb.WatchSessionRequest, context: Context
    ) -> None:
        """Write what happens in a session, for as long as the caller listens.

        Raises:
            NotFoundError: the user has no such session, or has deleted it.
            SequenceAheadError: there is no such sequence yet.
            SlowConsumerError: the caller reads too slowly.
        """
        after = request.after_sequence if request.HasField("after_sequence") else None
        session_id = SessionId(canonical_id(request.session_id))
        events = self._watch.watch(identity, session_id, after=after)
        sent = after
        # If a write were cancelled before the metadata is out, the caller would never see the end.
        await context.send_initial_metadata(())
        async with aclosing(events):
            async for event in events:
                await self._write(context, from_event(event), sent=sent)
                sent = event.through

    async def many(
        self, requests: AsyncIterator[pb.WatchSessionsRequest], context: Context
    ) -> None:
        """Write what happens in those sessions that the caller asks for, until it asks no more.

        Raises:
            SlowConsumerError: the caller reads too slowly.
        """
        await context.send_initial_metadata(())
        with self._watch.watching() as watching:
            async with task_group() as group:
                ends = [
                    group.create_task(self._read(requests, watching)),
                    group.create_task(self._tell(watching, context)),
                ]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                for each in ends:
                    each.cancel()

    async def _read(
        self, requests: AsyncIterator[pb.WatchSessionsRequest], watching: Watching
    ) -> None:
        async for request in requests:
            for watch in request.watches:
                self._begin(watching, watch)
            for watch_id in request.unwatch_ids:
                watching.end(watch_id)

    def _begin(self, watching: Watching, watch: pb.Watch) -> None:
        try:
            identity = self._verifier.identity(watch.identity_token)
        except UnauthenticatedError as error:
            watching.refuse(watch.watch_id, error)
            return
        watching.begin(
            watch.watch_id,
            identity,
            SessionId(canonical_id(watch.session_id)),
            after=watch.after_sequence if watch.HasField("after_sequence") else None,
            open_runs=[RunId(canonical_id(each)) for each in watch.open_run_ids],
        )

    async def _tell(self, watching: Watching, context: Context) -> None:
        while True:
            told = await watching.next()
            for response in from_told(told, domain=self._domain):
                await self._write(context, response)
            if self._watch.draining:
                await self._write(context, pb.WatchSessionsResponse(going_away=True))
                return

    async def _write(self, context: Context, response: Any, *, sent: int | None = None) -> None:
        try:
            async with asyncio.timeout(self._write_seconds):
                await context.write(response)
        except TimeoutError:
            raise SlowConsumerError.after(sent) from None
