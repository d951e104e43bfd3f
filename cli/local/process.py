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
from services.common.tasks import task_group

_POLL_SECONDS = 0.05
_ANSWER_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How patient the supervisor is; all but the last in seconds.

    Attributes:
        start: a service may take to be ready.
        stop: it may take to end after it was asked to, before it is made to.
        restart: before one that ended is started again.
        steady: after which one that ended had been running well.
        restarts: how often in a row one is started again that does not.
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
        """The service's."""
        return self.service.name

    async def start(self) -> None:
        """Starts the process; it logs to its file and ends when this process does."""
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
        """Returns once the service answers that it serves.

        Raises:
            EndedError: it ended instead; with the end of its log.
            StartError: it takes too long; with the same.
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
        """Starts the process anew, and returns once the service answers that it serves.

        Raises:
            EndedError, StartError: as `ready` does.
        """
        await self.start()
        await self.ready()

    async def ended(self) -> int:
        """The exit status, once the process has ended."""
        return await self._running.wait()

    async def stop(self) -> None:
        """Asks the process to stop, and makes it after a while."""
        process = self._running
        if process.returncode is not None:
            return
        try:
            async with asyncio.timeout(self._pace.stop):
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGTERM)
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def log_tail(self) -> str:
        """The last lines it has logged since it was started."""
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
