"""Keeps the services of one machine running, and stops them in order."""

import asyncio
import contextlib
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from grpc import aio
from grpc_health.v1 import health_pb2

from cli.local.errors import StartError
from cli.local.services import LocalService
from cli.output import Output

_START_SECONDS = 120.0
_STOP_SECONDS = 20.0
_RESTART_SECONDS = 1.0
_RESTARTS_IN_A_ROW = 5
_STEADY_SECONDS = 30.0
_TAIL_LINES = 8


class ServiceProcess:
    """One service as a child process."""

    def __init__(self, service: LocalService, log: Path) -> None:
        self.service = service
        self._log = log
        self._process: Process | None = None

    async def start(self) -> None:
        """Starts the process; it logs to its file and ends when this process does."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "cli.local.child", f"services.{self.service.name}"),
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
            StartError: it ended instead, or takes too long; with the end of its log.
        """
        health = asyncio.create_task(_serving(self.service.address))
        ended = asyncio.create_task(self.ended())
        try:
            done, _ = await asyncio.wait(
                {health, ended}, timeout=_START_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for task in (health, ended):
                task.cancel()
            await asyncio.gather(health, ended, return_exceptions=True)
        if health not in done or ended in done:
            what = "ended" if ended in done else f"was not ready after {_START_SECONDS:g} s"
            raise StartError(f"{self.service.name} {what}:\n{self.log_tail()}")

    async def ended(self) -> int:
        """The exit status, once the process has ended."""
        return await self._running.wait()

    async def stop(self) -> None:
        """Asks the process to stop, and makes it after a while."""
        process = self._running
        if process.returncode is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), _STOP_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()

    def log_tail(self) -> str:
        """The last lines of its log."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-_TAIL_LINES:])

    @property
    def _running(self) -> Process:
        if self._process is None:
            raise StartError(f"{self.service.name} was not started")
        return self._process


@asynccontextmanager
async def services_running(
    services: Sequence[LocalService], *, logs: Path
) -> AsyncIterator[list[ServiceProcess]]:
    """Runs the services until the context is left, then stops them, callers first.

    Raises:
        StartError: a service did not come up.
    """
    async with AsyncExitStack() as stack:
        processes = []
        for service in services:
            process = ServiceProcess(service, logs / f"{service.name}.log")
            await process.start()
            stack.push_async_callback(process.stop)
            processes.append(process)
        async with asyncio.TaskGroup() as group:
            for process in processes:
                group.create_task(process.ready())
        yield processes


async def keep_running(processes: Sequence[ServiceProcess], output: Output) -> None:
    """Starts again whatever ends, for as long as this is awaited.

    Raises:
        StartError: a service keeps ending.
    """
    async with asyncio.TaskGroup() as group:
        for process in processes:
            group.create_task(_keep_running(process, output))


async def _keep_running(process: ServiceProcess, output: Output) -> None:
    in_a_row = 0
    while True:
        started = time.monotonic()
        status = await process.ended()
        steady = time.monotonic() - started > _STEADY_SECONDS
        in_a_row = 1 if steady else in_a_row + 1
        if in_a_row > _RESTARTS_IN_A_ROW:
            raise StartError(f"{process.service.name} keeps ending:\n{process.log_tail()}")
        output.note(f"{process.service.name} ended with {status}; starting it again")
        await asyncio.sleep(_RESTART_SECONDS)
        await process.start()


async def _serving(address: str) -> None:
    async with aio.insecure_channel(address) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        while True:
            with contextlib.suppress(aio.AioRpcError):
                answer = await check(health_pb2.HealthCheckRequest(), wait_for_ready=True)
                if answer.status == health_pb2.HealthCheckResponse.SERVING:
                    return
            await asyncio.sleep(0.05)
