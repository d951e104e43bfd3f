"""As whom the server runs, tried as root and as others, and that nothing else is changed by it."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.local import postgres
from cli.local.launch import Launch, Way, find_binaries, hand_over, launches
from cli.local.postgres import EmbeddedPostgres
from tests.cli.local.running import elsewhere, one

NOBODY = 65534
NAMELESS = 31234
FAST = {"fsync": "off"}

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root can become somebody else"
)


@pytest.fixture
def closed_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that only root enters, with PostgreSQL's binaries in it."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    package = find_binaries().parent.parent
    for part in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(part, home / "venv" / part.name)
    binaries = home / "venv" / package.name / "pginstall" / "bin"
    monkeypatch.setattr(postgres, "find_binaries", lambda: binaries)
    return home


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter and nobody in particular owns."""
    folder = Path(tempfile.mkdtemp(prefix="chatmind-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def _allow_only(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        postgres, "launches", lambda cluster: [it for it in launches(cluster) if it.way == way]
    )


def _permissions(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Mode and owner of the folder, of all below it and of all above it."""
    paths = [folder, *folder.rglob("*"), *folder.parents]
    stats = {str(path): path.lstat() for path in paths}
    return {name: (stat.st_mode, stat.st_uid, stat.st_gid) for name, stat in stats.items()}


def _status(pid: int, field: str) -> list[str]:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(line.split()[1:] for line in lines if line.startswith(f"{field}:"))


class TestRoot:
    @pytest.mark.parametrize("way", ["namespace", "user"])
    async def test_works_in_a_home_closed_to_others_and_changes_no_permission(
        self, closed_home: Path, way: Way, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _allow_only(way, monkeypatch)
        before = _permissions(closed_home)

        async with EmbeddedPostgres(closed_home / "project" / ".chatmind") as server:
            assert await one(await server.create_database(), "SELECT 1") == 1
            rights = _status(server.pid, "CapEff")

        after = _permissions(closed_home)
        assert {name: after[name] for name in before} == before
        assert after[str(closed_home / "project" / ".chatmind")] == (0o40700, 0, 0)
        assert [int(mask, 16) for mask in rights] == [2 if way == "user" else 0]

    @pytest.mark.parametrize("way", ["namespace", "user"])
    async def test_keeps_no_capability_where_none_is_needed(
        self, open_folder: Path, way: Way, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _allow_only(way, monkeypatch)
        (open_folder / "data").mkdir(mode=0o755)

        async with EmbeddedPostgres(open_folder / "data", settings=FAST) as server:
            status = {name: _status(server.pid, name)[0] for name in ("CapEff", "CapPrm", "CapAmb")}

        assert {int(mask, 16) for mask in status.values()} == {0}

    async def test_in_a_namespace_everything_stays_its_own(self, tmp_path: Path) -> None:
        async with EmbeddedPostgres(tmp_path / "data", settings=FAST) as server:
            users = _status(server.pid, "Uid")

        assert users == ["0"] * 4
        assert {owner for _, owner, _ in _permissions(tmp_path / "data").values()} == {0}

    async def test_its_cluster_works_on_where_namespaces_are_forbidden(
        self, data_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _allow_only("user", monkeypatch)

        for _ in range(2):
            async with EmbeddedPostgres(data_dir) as server:
                assert await one(server.dsn(), "SELECT count(*) FROM item") == 10
                assert "0" not in _status(server.pid, "Uid")
        assert [launch.way for launch in launches(data_dir / "postgres")] == ["user"]

    async def test_runs_a_cluster_of_somebody_else_as_its_owner(self, open_folder: Path) -> None:
        data_dir = open_folder / "data"
        data_dir.mkdir()
        os.chown(data_dir, NOBODY, NOBODY)
        owner = Launch("user", NOBODY, NOBODY)
        async with elsewhere(data_dir, launch=owner) as other:
            assert await one(other.dsn, "SELECT 1") == 1
        (data_dir / "logs" / "postgres.log").unlink()

        async with EmbeddedPostgres(data_dir) as server:
            assert _status(server.pid, "Uid") == [str(NOBODY)] * 4

        theirs = [data_dir, *data_dir.rglob("*")]
        assert {path.lstat().st_uid for path in theirs} == {NOBODY}
        async with elsewhere(data_dir, launch=owner) as other:
            assert await one(other.dsn, "SELECT 1") == 1


class TestOthers:
    @pytest.mark.parametrize(("user", "seen"), [(NOBODY, NOBODY), (NAMELESS, NAMELESS)])
    async def test_run_it_as_themselves_with_or_without_a_name(
        self, open_folder: Path, user: int, seen: int
    ) -> None:
        data_dir = open_folder / "data"
        data_dir.mkdir(mode=0o700)
        os.chown(data_dir, user, user)
        before = _permissions(open_folder)

        async with elsewhere(data_dir, launch=Launch("user", user, user)) as other:
            assert await one(other.dsn, "SELECT count(*) FROM pg_class") != 0
            assert _status(other.server_pid, "Uid") == [str(seen)] * 4

        after = _permissions(open_folder)
        assert {name: after[name] for name in before} == before
        assert {path.lstat().st_uid for path in data_dir.rglob("*")} == {user}


class TestHandOver:
    def test_gives_all_below_but_not_what_links_point_to(self, tmp_path: Path) -> None:
        folder, outside = tmp_path / "folder", tmp_path / "outside"
        (folder / "deep" / "er").mkdir(parents=True)
        (folder / "deep" / "file").touch()
        outside.mkdir()
        (outside / "file").touch()
        (folder / "link").symlink_to(outside)

        hand_over(folder, Launch("user", NOBODY, NOBODY))

        assert {path.lstat().st_uid for path in (folder, *folder.rglob("*"))} == {NOBODY}
        assert {path.lstat().st_uid for path in (outside, outside / "file")} == {0}

    @pytest.mark.parametrize("way", ["self", "namespace"])
    def test_leaves_everything_where_the_user_stays_the_same(
        self, tmp_path: Path, way: Way
    ) -> None:
        hand_over(tmp_path, Launch(way, NOBODY, NOBODY))

        assert tmp_path.stat().st_uid == 0
