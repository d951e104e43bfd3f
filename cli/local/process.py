"""One service as a child process of the supervisor."""

import asyncio
import contextlib
import signal
import sys
from asyncio.subprocess import PIPE, Process
from dataclasses import dataclass
from pathlib import Path

from grpc import aio
from grpc_health.v1 import health_pb2

from cli.local.errors import EndedError, StartError
from cli.local.logs import rotate, tail
from cli.local.services import LocalService
from cli.local.signals import send
from services.common.tasks import task_group

_POLL_SECONDS = 0.05
_ANSWER_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Pace:
    """The supervisor's times, in seconds, and how often it restarts a process.

    Attributes:
        start: a service may take so long to be ready.
        stop: it may take so long to end after SIGTERM, before it is killed.
        restart: the pause before a process that ended is started again.
        steady: a process that ran so long before it ended had been running well.
        restarts: how often in a row a process that had not been running well is restarted.
    """

    start: float = 120.0
    stop: float = 20.0
    restart: float = 1.0
    steady: float = 30.0
    restarts: int = 5


class ServiceProcess:
    """One service as a child process."""

    def __init__(self, service: LocalService, log: Path, *, pace: Pace) -> None:
        self.service = service
        self._log = log
        self._pace = pace
        self._process: Process | None = None
        self._log_start = 0

    @property
    def name(self) -> str:
        """Its name for people."""
        return self.service.name

    async def start(self) -> None:
        """Start the process; it logs to its file, and ends when this process does."""
        rotate(self._log)
        with self._log.open("ab") as log:
            self._log_start = log.tell()
            self._process = await asyncio.create_subprocess_exec(
                # Without -P a folder called `services` where ChatMind is started would be run.
                *(sys.executable, "-P", "-m", "cli.local.child", self.service.module),
                stdin=PIPE,
                stdout=log,
                stderr=log,
                env=dict(self.service.environment),
                # Ctrl-C reaches the whole process group of a terminal; the supervisor stops its
                # children itself, in order.
                start_new_session=True,
            )

    async def ready(self) -> None:
        """Return once the service is serving.

        Raises:
            EndedError: it ended instead; the message holds the end of its log.
            StartError: it takes too long; the message holds the same.
        """
        try:
            async with asyncio.timeout(self._pace.start), task_group() as group:
                early_end = group.create_task(self._fail_at_end())
                await _serving(self.service.address)
                early_end.cancel()
        except TimeoutError:
            raise StartError(
                f"{self.service.name} was not ready after {self._pace.start:g} s:\n"
                f"{self.log_tail()}"
            ) from None

    async def start_again(self) -> None:
        """Start the process again, and return once the service is serving.

        Raises:
            EndedError, StartError: as `ready` does.
        """
        await self.start()
        await self.ready()

    async def ended(self) -> int:
        """Wait until the process ends; returns its exit status."""
        return await self._running.wait()

    async def stop(self) -> None:
        """Stop the process with SIGTERM, and if that takes too long with SIGKILL."""
        process = self._running
        if process.returncode is not None:
            return
        try:
            async with asyncio.timeout(self._pace.stop):
                send(process, signal.SIGTERM)
                await process.wait()
        except TimeoutError:
            send(process, signal.SIGKILL)
            await process.wait()

    def log_tail(self) -> str:
        """The last lines it has logged since its last start."""
        return tail(self._log, since=self._log_start)

    async def _fail_at_end(self) -> None:
        how = ending(await self.ended())
        raise EndedError(f"{self.service.name} {how}:\n{self.log_tail()}")

    @property
    def _running(self) -> Process:
        if self._process is None:
            raise StartError(f"{self.service.name} was not started")
        return self._process


def ending(status: int) -> str:
    """How a process ended, in words."""
    if status >= 0:
        return f"ended with status {status}"
    return f"was ended by {signal.Signals(-status).name}"


async def _serving(address: str) -> None:
    async with aio.insecure_channel(address, [("grpc.enable_http_proxy", 0)]) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        while True:
            with contextlib.suppress(aio.AioRpcError):
                request = health_pb2.HealthCheckRequest()
                answer = await check(request, wait_for_ready=True, timeout=_ANSWER_SECONDS)
                if answer.status == health_pb2.HealthCheckResponse.SERVING:
                    return
            await asyncio.sleep(_POLL_SECONDS)
