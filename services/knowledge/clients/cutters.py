"""The port `Cutter` over processes of our own, so that one document never hurts another.

Cutting is all computation: in this process it would hold up every call, and a document made to be
hard could do so for minutes. A process has a time and a memory limit, and is replaced when it dies.
"""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import structlog

from services.common.errors import ResourceExhaustedError
from services.knowledge.clients.cutter_answers import Head, Part
from services.knowledge.clients.frames import pack, receive
from services.knowledge.domain.ingest.cutting import (
    CutDocument,
    CutRequest,
    CutterDiedError,
    CutterTimeoutError,
    UncuttableError,
)

_MODULE = "services.knowledge.clients.cutter_process"
_MEGABYTE = 1024 * 1024
_LARGE = 8 * _MEGABYTE
_BUFFER = 4 * _MEGABYTE
_START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class CutterLimits:
    """What cutting may cost.

    Attributes:
        seconds: for any document.
        seconds_per_megabyte: for each of its megabytes in addition.
        memory_bytes: of address space, for a process.
        patience: seconds that a document waits for a process to come free.
    """

    seconds: float
    seconds_per_megabyte: float
    memory_bytes: int
    patience: float

    def seconds_for(self, request: CutRequest) -> float:
        """How long a document may take."""
        return self.seconds + self.seconds_per_megabyte * len(request.content) / _MEGABYTE


class Cutters:
    """A fixed number of processes, each started when it is first needed; see `open_cutters`."""

    def __init__(self, limits: CutterLimits, *, count: int) -> None:
        self._limits = limits
        self._all = [_CutterProcess(limits) for _ in range(count)]
        self._free: asyncio.LifoQueue[_CutterProcess] = asyncio.LifoQueue()
        for cutter in self._all:
            self._free.put_nowait(cutter)

    async def cut(self, request: CutRequest) -> CutDocument:
        """See the port.

        Raises:
            ResourceExhaustedError: no process came free in time.
        """
        try:
            async with asyncio.timeout(self._limits.patience):
                cutter = await self._free.get()
        except TimeoutError:
            raise ResourceExhaustedError("Too many documents are being cut.") from None
        try:
            return await cutter.cut(request)
        finally:
            self._free.put_nowait(cutter)

    async def close(self) -> None:
        """End the processes."""
        for cutter in self._all:
            await cutter.end()


@asynccontextmanager
async def open_cutters(limits: CutterLimits, *, count: int) -> AsyncIterator[Cutters]:
    """`count` processes that cut documents, for as long as the block lasts."""
    cutters = Cutters(limits, count=count)
    try:
        yield cutters
    finally:
        await cutters.close()


class _CutterProcess:
    """One process, one document at a time."""

    def __init__(self, limits: CutterLimits) -> None:
        self._limits = limits
        self._process: Process | None = None
        self._log = structlog.get_logger("cutters")

    async def cut(self, request: CutRequest) -> CutDocument:
        """Cut a document, see the port; a process that did not answer is replaced."""
        limit = self._limits.seconds_for(request)
        try:
            process = self._process or await self._start()
            async with asyncio.timeout(limit):
                document = await _exchange(process, request)
        except TimeoutError:
            await self.end()
            self._log.warning("cutting took too long", seconds=limit)
            raise CutterTimeoutError from None
        except UncuttableError as error:
            self._log.warning("a document was not cut", error=str(error))
            raise
        except (EOFError, ConnectionError) as error:
            await self.end()
            self._log.warning("a cutter died")
            raise CutterDiedError from error
        except BaseException:
            await self.end()
            raise
        if len(request.content) > _LARGE:
            await self.end()  # a process keeps the memory that it once had
        return document

    async def end(self) -> None:
        """End the process, whatever it is at."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()  # takes in what was left in the pipes, and closes them

    async def _start(self) -> Process:
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            _MODULE,
            str(self._limits.memory_bytes),
            stdin=PIPE,
            stdout=PIPE,
            limit=_BUFFER,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        if process.stdout is None:
            raise EOFError
        try:
            async with asyncio.timeout(_START_SECONDS):
                await receive(process.stdout, Head)
        except TimeoutError:
            raise EOFError from None
        return process


async def _exchange(process: Process, request: CutRequest) -> CutDocument:
    if process.stdin is None or process.stdout is None:
        raise EOFError
    process.stdin.write(pack(request))
    await process.stdin.drain()
    head = await receive(process.stdout, Head)
    if head.failure:
        raise UncuttableError(head.failure)
    parts = [await receive(process.stdout, Part) for _ in range(head.parts)]
    return CutDocument(
        head.title,
        head.metadata,
        tuple(piece for part in parts for piece in part.pieces),
        tuple(digest for part in parts for digest in part.digests),
    )
