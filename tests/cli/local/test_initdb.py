"""Making a new cluster."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cli.local.cluster import DataDirectory
from cli.local.errors import StartError
from cli.local.initdb import create_cluster
from cli.local.launch import Launch, find_binaries, launches
from cli.local.programs import Programs


@pytest.fixture
async def programs(tmp_path: Path) -> AsyncIterator[Programs]:
    """The real programs, with lock and log in this test's folder."""
    files = DataDirectory(tmp_path)
    lock, log = await files.claim(), files.open_log()
    yield Programs(find_binaries(), log=log, lock=lock)
    os.close(log)
    os.close(lock)


@pytest.fixture
async def launch(tmp_path: Path, programs: Programs) -> Launch:
    """The way to start them here."""
    return await programs.choose(launches(tmp_path / "cluster"))


async def _create(cluster: Path, programs: Programs, launch: Launch) -> None:
    await create_cluster(cluster, "secret-word", programs=programs, launch=launch, sync=False)


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


class TestCreateCluster:
    async def test_leaves_a_cluster_and_nothing_else(
        self, tmp_path: Path, programs: Programs, launch: Launch
    ) -> None:
        before = _names(tmp_path)

        await _create(tmp_path / "cluster", programs, launch)

        assert _names(tmp_path) - before == {"cluster"}
        assert "PG_VERSION" in _names(tmp_path / "cluster")
        assert (tmp_path / "cluster").stat().st_mode == 0o40700

    async def test_starts_over_where_an_earlier_try_died(
        self, tmp_path: Path, programs: Programs, launch: Launch
    ) -> None:
        (tmp_path / "cluster.new" / "cluster" / "base").mkdir(parents=True)
        (tmp_path / "cluster.new" / "password").touch()

        await _create(tmp_path / "cluster", programs, launch)

        assert "PG_VERSION" in _names(tmp_path / "cluster")
        assert "cluster.new" not in _names(tmp_path)

    async def test_leaves_no_cluster_if_it_fails(
        self, tmp_path: Path, programs: Programs, launch: Launch
    ) -> None:
        failing = Programs(tmp_path / "absent", log=programs.log, lock=programs.lock)

        with pytest.raises(StartError, match="initdb ended with exit code"):
            await _create(tmp_path / "cluster", failing, launch)
        assert "cluster" not in _names(tmp_path)
