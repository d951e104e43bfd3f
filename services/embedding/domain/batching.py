"""Merges concurrent requests into few backend calls, and splits large ones.

No batch is held back so that it can grow: the next one fills while the backend works. Queries go
before documents, so a search waits for one call, not for somebody's ten thousand chunks.
"""

import asyncio
from collections.abc import Sequence

from services.embedding.domain.errors import BackendUnavailableError, BusyError
from services.embedding.domain.isolation import embed_each
from services.embedding.domain.models import BatchLimits, Outcome, Purpose
from services.embedding.domain.ports import Backend
from services.embedding.domain.queue import Job, Slice, TextQueue

QUERIES_IN_A_ROW = 16
"""After this many batches of queries comes one of documents, lest those wait forever."""


class Batcher:
    """The queue in front of one backend; `embed` returns only while `run` is running."""

    def __init__(
        self,
        backend: Backend,
        limits: BatchLimits,
        *,
        concurrency: int,
        max_pending_texts: int,
        max_pending_chars: int,
    ) -> None:
        """Start with an empty queue.

        Args:
            backend: computes the vectors.
            limits: what one call to it may carry.
            concurrency: how many calls may run at once.
            max_pending_texts: how many texts may wait, per purpose.
            max_pending_chars: how many characters these may have together.
        """
        self.backend = backend
        self._concurrency = concurrency
        self._max_pending = (max_pending_texts, max_pending_chars)
        self._queues = {purpose: TextQueue(limits) for purpose in Purpose}
        self._arrived = asyncio.Event()
        self._open: set[Job] = set()
        self._ended = False
        self._queries_in_a_row = 0

    async def run(self) -> None:
        """Work until cancelled; requests that still wait then fail as retriable."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._concurrency):
                    group.create_task(self._work())
        finally:
            self._ended = True
            for job in self._open:
                job.fail(self._ending())

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[Outcome]:
        """One outcome for each text, in their order.

        Raises:
            BusyError: too much is waiting already.
            BackendUnavailableError: the backend could not be reached.
        """
        if self._ended:
            raise self._ending()
        if not texts:
            return []
        queue = self._queues[purpose]
        self._admit(queue, texts)
        job = Job(texts, asyncio.get_running_loop().create_future())
        self._open.add(job)
        queue.add(job)
        self._arrived.set()
        try:
            return await job.done
        finally:
            self._open.discard(job)
            queue.drop(job)

    def _admit(self, queue: TextQueue, texts: Sequence[str]) -> None:
        max_texts, max_chars = self._max_pending
        chars = queue.chars + sum(map(len, texts))
        # An empty queue accepts a request of any size; otherwise a large one could never run.
        if queue and (queue.texts + len(texts) > max_texts or chars > max_chars):
            raise BusyError(self.backend.spec)

    async def _work(self) -> None:
        while True:
            purpose, batch = await self._next()
            texts = [text for part in batch for text in part.texts]
            try:
                outcomes = await embed_each(self.backend, texts, purpose=purpose)
            except Exception as error:  # noqa: BLE001 - raised to these callers; others go on
                self._fail(purpose, batch, error)
            else:
                _settle(batch, outcomes)

    async def _next(self) -> tuple[Purpose, list[Slice]]:
        while not any(self._queues.values()):
            self._arrived.clear()
            await self._arrived.wait()
        purpose = self._turn()
        return purpose, self._queues[purpose].take()

    def _turn(self) -> Purpose:
        queries, documents = self._queues[Purpose.QUERY], self._queues[Purpose.DOCUMENT]
        if queries and (not documents or self._queries_in_a_row < QUERIES_IN_A_ROW):
            self._queries_in_a_row += 1
            return Purpose.QUERY
        self._queries_in_a_row = 0
        return Purpose.DOCUMENT

    def _fail(self, purpose: Purpose, batch: Sequence[Slice], error: Exception) -> None:
        for part in batch:
            self._queues[purpose].drop(part.job)
            part.job.fail(error)

    def _ending(self) -> BackendUnavailableError:
        return BackendUnavailableError(self.backend.spec, "the service is about to stop")


def _settle(batch: Sequence[Slice], outcomes: Sequence[Outcome]) -> None:
    position = 0
    for part in batch:
        count = part.stop - part.start
        part.job.settle(part.start, outcomes[position : position + count])
        position += count
