"""A data directory that has seen its first run."""

import asyncio
import shutil
from pathlib import Path

import pytest

from cli.local.postgres import EmbeddedPostgres
from tests.cli.local.running import execute


@pytest.fixture(scope="session")
def made_data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory after its first run, with ten rows in the table `item`."""
    data_dir = tmp_path_factory.mktemp("made") / "data"

    async def make() -> None:
        async with EmbeddedPostgres(data_dir, settings={"fsync": "off"}) as server:
            dsn = await server.create_database()
            await execute(dsn, "CREATE TABLE item AS SELECT generate_series(1, 10) AS id")

    with asyncio.Runner() as runner:
        runner.run(make())
    return data_dir


@pytest.fixture
def data_dir(made_data_dir: Path, tmp_path: Path) -> Path:
    """A copy of `made_data_dir` for this test alone."""
    return Path(shutil.copytree(made_data_dir, tmp_path / "data"))
