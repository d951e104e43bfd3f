"""Starts everything on one machine, in the order of dependence."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from cli.client import connect, read_key
from cli.local.addresses import check_addresses, wait_until_free
from cli.local.database import owned_database
from cli.local.errors import StartError
from cli.local.identity_keys import ensure_identity_keys
from cli.local.postgres import EmbeddedPostgres
from cli.local.services import Layout, plan_layout, plan_services
from cli.local.settings import check_settings
from cli.local.starter import ensure_starter
from cli.local.supervisor import keep_running, services_running
from cli.output import Output
from services.common.tasks import task_group

_ROOT = Path(__file__).resolve().parents[2]
_LEAVE_SECONDS = 20.0
_NOT_YET_KNOWN = "postgresql://"


async def run_everything(data_dir: Path, output: Output) -> None:
    """Run the database and the services until SIGINT, SIGTERM or SIGHUP.

    One line is printed on stdout once everything is ready.

    Raises:
        LocalError: a part did not start, or keeps ending.
    """
    loop = asyncio.get_running_loop()
    async with task_group() as group:
        work = group.create_task(_run(data_dir, output))
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # Only once: a second signal must not cut the orderly shutdown short.
            loop.add_signal_handler(signum, lambda: work.cancelling() or work.cancel())
    output.note("stopped")


async def _run(data_dir: Path, output: Output) -> None:
    layout = _prepared(data_dir, output)
    # The database first: it tells at once where ChatMind already runs, whose addresses stay taken.
    async with _database(data_dir, output) as (server, database_url):
        await wait_until_free(layout.listening, patience=_LEAVE_SECONDS)
        services = plan_services(layout, database_url=database_url)
        output.note("starting " + ", ".join(service.name for service in services))
        async with services_running(services, logs=layout.logs) as processes:
            await asyncio.to_thread(_make_starter, layout)
            output.text(_ready_line(layout))
            await keep_running(processes, output, database=server)


def _prepared(data_dir: Path, output: Output) -> Layout:
    """The layout, its settings checked, with the folders and keys it needs in place."""
    layout = plan_layout(data_dir)
    given = os.environ.get("CHATMIND_DATABASE_URL") or _NOT_YET_KNOWN
    check_settings(plan_services(layout, database_url=given), output)
    check_addresses(layout.listening)
    try:
        for folder in (data_dir, layout.logs):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        ensure_identity_keys(layout.identity_dir)
    except OSError as error:
        raise StartError(f"{data_dir} cannot be used: {error.strerror}") from error
    return layout


def _ready_line(layout: Layout) -> str:
    return f"ready grpc={layout.grpc['gateway']} http=http://{layout.http} key={layout.key_file}"


def _make_starter(layout: Layout) -> None:
    with connect(layout.grpc["gateway"], read_key(layout.key_file)) as gateway:
        ensure_starter(gateway, _ROOT)


@asynccontextmanager
async def _database(
    data_dir: Path, output: Output
) -> AsyncIterator[tuple[EmbeddedPostgres | None, str]]:
    """The address of the database: the one that is set, or that of a server of our own."""
    if given := os.environ.get("CHATMIND_DATABASE_URL"):
        yield None, given
        return
    output.note("starting PostgreSQL")
    async with EmbeddedPostgres(data_dir) as server:
        yield server, await owned_database(server, data_dir)
