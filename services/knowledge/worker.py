"""Takes documents off the queue and ingests them, several at once.

Each slot claims one document at a time, keeps the claim alive while it works on it, and brings the
document to an end: searchable, failed, or back in the queue. A claim that is lost ends the work.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import structlog

from services.common.errors import (
    AbortedError,
    ResourceExhaustedError,
    ServiceError,
    UnavailableError,
)
from services.common.hints import Listener, Notifier
from services.common.tasks import background_tasks
from services.knowledge.domain.errors import EmbeddingUnavailableError
from services.knowledge.domain.hints import INGEST_QUEUE, document_key
from services.knowledge.domain.ingest.cutting import (
    CutterDiedError,
    CutterTimeoutError,
    UncuttableError,
)
from services.knowledge.domain.ingest.failures import IngestionFailedError, document_error
from services.knowledge.domain.ingest.job import (
    IngestedDocument,
    IngestJob,
    LeaseLostError,
    PutBack,
)
from services.knowledge.domain.ingest.retry import retry_delay
from services.knowledge.domain.ingest.run import Ingestion
from services.knowledge.domain.ports import IngestQueue

_PAUSE = 1.0
_LAST_WRITE_SECONDS = 2.0
_SAFE = 5 / 6  # of a lease: not renewed by then, the work is given up before the lease lapses
_AWAY = (UnavailableError, ResourceExhaustedError, AbortedError)


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """What bounds a worker.

    Attributes:
        slots: how many documents at once.
        lease: seconds that a claim holds without being renewed.
        max_attempts: how many claims may end in a crash before the document fails.
        max_retries: how often it may be put off while the embedding service is away.
    """

    slots: int
    lease: float
    max_attempts: int
    max_retries: int


class Worker:
    """Works on the queue for as long as it runs."""

    def __init__(
        self,
        queue: IngestQueue,
        ingestion: Ingestion,
        *,
        listener: Listener,
        notifier: Notifier,
        limits: WorkerLimits,
    ) -> None:
        self._queue = queue
        self._ingestion = ingestion
        self._listener = listener
        self._notifier = notifier
        self._limits = limits
        self._log = structlog.get_logger("worker")

    async def run(self) -> None:
        """Ingest documents until cancelled; what is in hand goes back into the queue then."""
        async with background_tasks() as tasks:
            for number in range(self._limits.slots):
                tasks.start(f"ingest {number}", self._slot())
            await asyncio.Event().wait()

    async def _slot(self) -> None:
        with self._listener.subscribe(INGEST_QUEUE) as news:
            while True:
                try:
                    job = await self._queue.claim(lease=self._limits.lease)
                except _AWAY:
                    await asyncio.sleep(_PAUSE)
                    continue
                if job is None:
                    await news.wait()
                else:
                    await self._bring_to_an_end(job)
                    self._notifier.notify(document_key(job.document_id))

    async def _bring_to_an_end(self, job: IngestJob) -> None:
        try:
            await self._settle(job)
        except LeaseLostError:
            self._log.info("claim lost", document=job.document_id)
        except _AWAY as error:
            self._log.warning("database away", document=job.document_id, error=error.message)
            await self._hand_back(job, delay=_PAUSE)
        except asyncio.CancelledError:
            await asyncio.shield(self._hand_back(job, delay=0.0))
            raise

    async def _settle(self, job: IngestJob) -> None:
        """Bring a document to an end of its own.

        Raises:
            LeaseLostError: the claim is lost.
            ServiceError: the database is away.
        """
        try:
            await self._ingest(job)
        except LeaseLostError:
            raise
        except EmbeddingUnavailableError as error:
            await self._put_off(job, error)
        except CutterTimeoutError:
            await self._fail(job, IngestionFailedError("Cutting the document took too long."))
        except UncuttableError:
            await self._fail(job, IngestionFailedError("The document could not be cut."))
        except CutterDiedError:
            await self._queue.put_back(job, PutBack.CRASHED, delay=_PAUSE)
        except _AWAY:
            raise
        except ServiceError as error:
            await self._fail(job, error)
        except Exception:  # noqa: BLE001 - one document must not end the worker; it is counted
            self._log.exception("ingestion crashed", document=job.document_id)
            await self._queue.put_back(job, PutBack.CRASHED, delay=_PAUSE)

    async def _ingest(self, job: IngestJob) -> None:
        if job.attempts > self._limits.max_attempts:
            raise IngestionFailedError(
                f"Ingestion was given up: it did not survive {self._limits.max_attempts} attempts."
            )
        self._notifier.notify(document_key(job.document_id))

        async def show(done: int, total: int) -> None:
            with suppress(*_AWAY):
                await self._queue.record_progress(job, done=done, total=total)
                self._notifier.notify(document_key(job.document_id))

        async with self._held(job):
            result = await self._ingestion.run(job, show)
            await self._finish(job, result)
        self._log.info("ingested", document=job.document_id, chunks=len(result.chunks))

    async def _finish(self, job: IngestJob, result: IngestedDocument) -> None:
        """Write the result, again and again while the claim holds: it was expensive to make."""
        while True:
            try:
                return await self._queue.finish(job, result)
            except _AWAY as error:
                self._log.warning("cannot write", document=job.document_id, error=error.message)
                await asyncio.sleep(_PAUSE)

    @asynccontextmanager
    async def _held(self, job: IngestJob) -> AsyncIterator[None]:
        """Keep the claim while the block runs, and end the block before it can lapse.

        Raises:
            LeaseLostError: the claim is lost, or could not be renewed in time.
        """
        limit = asyncio.timeout(self._limits.lease * _SAFE)
        try:
            async with limit, background_tasks() as tasks:
                tasks.start(f"hold {job.document_id}", self._renew(job, limit))
                yield
        except TimeoutError:
            if limit.expired():
                raise LeaseLostError from None
            raise

    async def _renew(self, job: IngestJob, limit: asyncio.Timeout) -> None:
        clock = asyncio.get_running_loop().time
        lease = self._limits.lease
        while True:
            await asyncio.sleep(lease / 3)
            asked = clock()
            try:
                await self._queue.renew(job, lease=lease)
                limit.reschedule(asked + lease * _SAFE)
            except LeaseLostError:
                return limit.reschedule(asked)
            except _AWAY:
                continue

    async def _put_off(self, job: IngestJob, error: EmbeddingUnavailableError) -> None:
        if job.retries >= self._limits.max_retries:
            message = f"Ingestion was given up after {job.retries + 1} tries. {error.message}"
            await self._fail(job, IngestionFailedError(message))
            return
        delay = retry_delay(job.retries, spread=random.random())  # noqa: S311
        shown = document_error(error)
        await self._queue.put_back(job, PutBack.OUTAGE, delay=delay, error=shown)
        self._log.info("put off", document=job.document_id, seconds=delay, error=error.message)

    async def _fail(self, job: IngestJob, error: ServiceError) -> None:
        await self._queue.fail(job, document_error(error))
        self._log.info("failed", document=job.document_id, reason=error.reason)

    async def _hand_back(self, job: IngestJob, *, delay: float) -> None:
        with suppress(LeaseLostError, TimeoutError, *_AWAY):
            async with asyncio.timeout(_LAST_WRITE_SECONDS):
                await self._queue.put_back(job, PutBack.HANDED_BACK, delay=delay)
