"""The embedded PostgreSQL through starts, kills and restarts."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import asyncpg
import pytest

from cli.local import postgres, programs
from cli.local.cluster import DataDirectory, is_server
from cli.local.errors import AlreadyRunningError, EndedError, StartError
from cli.local.ports import free_ports
from cli.local.postgres import EmbeddedPostgres
from tests.cli.local.running import (
    children_of,
    elsewhere,
    end,
    execute,
    gone,
    one,
    start_orphan,
)

FAST = {"fsync": "off"}

PROMISES = {
    "SELECT current_database()": "chatmind",
    "SELECT pg_encoding_to_char(encoding) FROM pg_database WHERE datname = 'template1'": "UTF8",
    "SELECT datlocprovider FROM pg_database WHERE datname = current_database()": b"b",
    "SELECT datlocale FROM pg_database WHERE datname = current_database()": "C.UTF-8",
    "SHOW data_checksums": "on",
    "SHOW password_encryption": "scram-sha-256",
    "SELECT string_agg(DISTINCT auth_method, ',') FROM pg_hba_file_rules": "scram-sha-256",
    "SHOW listen_addresses": "127.0.0.1",
    "SHOW unix_socket_directories": "",
    "SHOW TimeZone": "UTC",
    "SELECT current_setting('server_version_num')::int >= 180000": True,
}

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel about processes")


@contextmanager
def _taken_port() -> Iterator[int]:
    """A port at which somebody listens, with a free one after it."""
    for port in free_ports():
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            listener.listen()
            yield port
            return


class TestServer:
    async def test_is_made_as_promised(self, tmp_path: Path) -> None:
        async with EmbeddedPostgres(tmp_path / "a" / "data") as server:
            dsn = await server.create_database()
            await execute(dsn, "CREATE EXTENSION vector")
            shown = {query: await one(dsn, query) for query in PROMISES}

        assert shown == PROMISES

    async def test_listens_below_the_ports_of_outgoing_connections(self, data_dir: Path) -> None:
        async with EmbeddedPostgres(data_dir) as server:
            assert 1024 < server.port < 32768

    async def test_keeps_rows_and_password_over_a_restart(self, data_dir: Path) -> None:
        async with EmbeddedPostgres(data_dir) as server:
            await execute(server.dsn(), "INSERT INTO item VALUES (11)")
            first = server.dsn().split("@")[0]

        async with EmbeddedPostgres(data_dir) as server:
            assert await one(server.dsn(), "SELECT count(*) FROM item") == 11
            assert server.dsn().split("@")[0] == first

    async def test_refuses_a_wrong_password(self, data_dir: Path) -> None:
        async with EmbeddedPostgres(data_dir) as server:
            with pytest.raises(asyncpg.InvalidPasswordError):
                await asyncpg.connect(server.dsn(), password="guess")

    async def test_creating_a_database_again_gives_the_same(self, data_dir: Path) -> None:
        async with EmbeddedPostgres(data_dir) as server:
            made = await asyncio.gather(*(server.create_database("other") for _ in range(3)))

        assert made == [server.dsn("other")] * 3

    async def test_is_gone_after_the_block_and_no_zombie(self, data_dir: Path) -> None:
        async with EmbeddedPostgres(data_dir) as server:
            pid = server.pid
            os.kill(pid, 0)

        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    async def test_ends_with_open_connections(self, data_dir: Path) -> None:
        async with asyncio.timeout(10), EmbeddedPostgres(data_dir) as server:
            session = await asyncpg.connect(server.dsn())
            await session.execute("BEGIN; INSERT INTO item VALUES (11)")

        session.terminate()

    async def test_ctrl_c_at_the_terminal_does_not_reach_it(self, data_dir: Path) -> None:
        async with EmbeddedPostgres(data_dir) as server:
            assert os.getsid(server.pid) == server.pid

    async def test_settings_are_the_servers(self, data_dir: Path) -> None:
        settings = {"max_connections": "23", "timezone": "Asia/Shanghai"}
        async with EmbeddedPostgres(data_dir, settings=settings) as server:
            shown = [await one(server.dsn(), f"SHOW {name}") for name in settings]

        assert shown == list(settings.values())

    async def test_its_end_is_told(self, data_dir: Path) -> None:
        async with EmbeddedPostgres(data_dir) as server:
            os.kill(server.pid, signal.SIGINT)

            assert await asyncio.wait_for(server.ended(), 10) == 0

    async def test_one_that_does_not_heed_is_forced(
        self, data_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(programs, "_FORCED_GRACE", 0.2)
        async with EmbeddedPostgres(data_dir, stop_timeout=0.2) as server:
            pid = server.pid
            os.kill(pid, signal.SIGSTOP)

        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    async def test_runs_under_uvloop(self, data_dir: Path) -> None:
        async with elsewhere(data_dir, loop="uvloop") as other:
            assert await one(other.dsn, "SELECT count(*) FROM item") == 10


class TestStart:
    async def test_says_what_postgresql_complains_of_and_lets_go(self, data_dir: Path) -> None:
        with pytest.raises(StartError, match="shared_buffers"):
            async with EmbeddedPostgres(data_dir, settings={"shared_buffers": "nonsense"}):
                pass

        async with EmbeddedPostgres(data_dir):
            pass

    async def test_gives_up_in_time(self, data_dir: Path) -> None:
        with pytest.raises(StartError, match="not up after"):
            async with EmbeddedPostgres(data_dir, start_timeout=0.001):
                pass

        async with EmbeddedPostgres(data_dir):
            pass

    async def test_cancelled_anywhere_it_leaves_nothing_running(self, tmp_path: Path) -> None:
        data_dir = tmp_path / "data"
        for moment in (0.0, 0.05, 0.1, 0.2, 0.4, 0.6):
            starting = asyncio.create_task(EmbeddedPostgres(data_dir).__aenter__())
            await asyncio.wait({starting}, timeout=moment)
            if starting.done():
                await (await starting).__aexit__(None, None, None)
                continue
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
            os.close(await asyncio.wait_for(DataDirectory(data_dir).claim(), 5))

        async with EmbeddedPostgres(data_dir):
            pass

    async def test_takes_the_next_port_if_the_wanted_one_is_taken(self, data_dir: Path) -> None:
        with _taken_port() as taken:
            async with EmbeddedPostgres(data_dir, port=taken) as server:
                assert taken < server.port < taken + 100

    async def test_takes_the_next_port_if_it_loses_the_race_forone(
        self, data_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with _taken_port() as taken:
            monkeypatch.setattr(postgres, "free_ports", lambda first: iter((first, first + 1)))
            async with EmbeddedPostgres(data_dir, port=taken) as server:
                assert server.port == taken + 1

    async def test_of_two_at_once_one_wins_and_the_other_is_told(self, data_dir: Path) -> None:
        async with EmbeddedPostgres(data_dir) as server:
            with pytest.raises(AlreadyRunningError, match=str(data_dir)):
                await EmbeddedPostgres(data_dir).__aenter__()

            assert await one(server.dsn(), "SELECT count(*) FROM item") == 10

    async def test_of_two_processes_at_once_one_wins(self, data_dir: Path) -> None:
        async with elsewhere(data_dir) as other:
            with pytest.raises(AlreadyRunningError):
                await EmbeddedPostgres(data_dir).__aenter__()

            assert await one(other.dsn, "SELECT count(*) FROM item") == 10

    async def test_a_first_start_that_died_halfway_is_done_again(self, tmp_path: Path) -> None:
        halfway = tmp_path / "postgres.new" / "cluster"
        halfway.mkdir(parents=True)
        (halfway / "PG_VERSION").write_text("18\n")

        async with EmbeddedPostgres(tmp_path, settings=FAST) as server:
            assert await one(server.dsn("postgres"), "SELECT 1") == 1
        assert not (tmp_path / "postgres.new").exists()

    async def test_a_lost_password_is_told(self, data_dir: Path) -> None:
        (data_dir / "postgres.password").unlink()

        with pytest.raises(StartError, match=r"postgres\.password is missing"):
            await EmbeddedPostgres(data_dir).__aenter__()

    async def test_a_changed_password_is_told(self, data_dir: Path) -> None:
        (data_dir / "postgres.password").write_text("other")

        with pytest.raises(StartError, match="does not accept the password"):
            await EmbeddedPostgres(data_dir).__aenter__()

    async def test_a_large_log_is_moved_aside(self, data_dir: Path) -> None:
        log = data_dir / "logs" / "postgres.log"
        os.truncate(log, 40_000_000)

        async with EmbeddedPostgres(data_dir):
            pass

        assert log.with_name("postgres.log.1").stat().st_size == 40_000_000
        assert log.stat().st_size < 10_000


class TestAfterDeath:
    async def test_a_killed_server_keeps_what_was_committed(self, data_dir: Path) -> None:
        async with EmbeddedPostgres(data_dir) as server:
            for number in range(20):
                await execute(server.dsn(), f"INSERT INTO item VALUES ({100 + number})")
            os.kill(server.pid, signal.SIGKILL)
            assert await asyncio.wait_for(server.ended(), 5) == -signal.SIGKILL

        async with EmbeddedPostgres(data_dir) as server:
            assert await one(server.dsn(), "SELECT count(*) FROM item") == 30

    async def test_it_is_started_again_where_it_was(self, data_dir: Path) -> None:
        async with EmbeddedPostgres(data_dir) as server:
            dsn, pids = server.dsn(), [server.pid]
            for number in range(3):
                await execute(dsn, f"INSERT INTO item VALUES ({100 + number})")
                os.kill(server.pid, signal.SIGKILL)
                await asyncio.wait_for(server.ended(), 5)
                await server.start_again()
                pids.append(server.pid)

            assert await one(dsn, "SELECT count(*) FROM item") == 13

        assert len(set(pids)) == 4
        assert all(not is_server(pid, data_dir / "postgres") for pid in pids)

    async def test_one_that_cannot_start_again_is_told_and_may_be_tried_later(
        self, data_dir: Path
    ) -> None:
        control = data_dir / "postgres/global/pg_control"
        async with EmbeddedPostgres(data_dir) as server:
            os.kill(server.pid, signal.SIGKILL)
            await asyncio.wait_for(server.ended(), 5)
            control.rename(control.with_name("aside"))
            with pytest.raises(EndedError, match=r"pg_control|could not find the database system"):
                await server.start_again()
            assert "pg_control" in server.log_tail()
            control.with_name("aside").rename(control)
            await server.start_again()

            assert await one(server.dsn(), "SELECT count(*) FROM item") == 10

    async def test_a_killed_server_whose_id_went_to_another_is_not_taken_for_running(
        self, data_dir: Path
    ) -> None:
        async with EmbeddedPostgres(data_dir) as server:
            os.kill(server.pid, signal.SIGKILL)
            await asyncio.wait_for(server.ended(), 5)
        innocent = await asyncio.create_subprocess_exec("sleep", "60", cwd=data_dir / "postgres")
        record = data_dir / "postgres" / "postmaster.pid"
        rest = record.read_text(encoding="utf-8").partition("\n")[2]
        record.write_text(f"{innocent.pid}\n{rest}", encoding="utf-8")

        async with EmbeddedPostgres(data_dir) as server:
            assert await one(server.dsn(), "SELECT count(*) FROM item") == 10
        assert innocent.returncode is None
        innocent.kill()
        await innocent.wait()

    @on_linux
    async def test_the_server_of_a_killed_supervisor_ends(self, data_dir: Path) -> None:
        async with elsewhere(data_dir) as other:
            await execute(other.dsn, "INSERT INTO item VALUES (11)")
            other.process.send_signal(signal.SIGKILL)
            await asyncio.wait_for(other.process.wait(), 5)
            await asyncio.wait_for(gone(other.server_pid), 10)

        assert "received fast shutdown request" in (data_dir / "logs/postgres.log").read_text()

    async def test_right_after_a_killed_supervisor_it_starts_anew(self, data_dir: Path) -> None:
        async with elsewhere(data_dir) as other:
            await execute(other.dsn, "INSERT INTO item VALUES (11)")
            other.process.send_signal(signal.SIGKILL)
            await asyncio.wait_for(other.process.wait(), 5)

            async with EmbeddedPostgres(data_dir) as server:
                assert server.pid != other.server_pid
                assert await one(server.dsn(), "SELECT count(*) FROM item") == 11

    async def test_an_orphaned_server_is_shut_down_first(self, data_dir: Path) -> None:
        orphan = await start_orphan(data_dir)

        async with EmbeddedPostgres(data_dir) as server:
            assert orphan.returncode == 0
            assert await one(server.dsn(), "SELECT count(*) FROM item") == 10

    @on_linux
    async def test_processes_of_a_killed_orphan_are_waited_for(self, data_dir: Path) -> None:
        orphan = await start_orphan(data_dir)
        children = children_of(orphan.pid)
        for child in children:
            os.kill(child, signal.SIGSTOP)
        orphan.kill()
        await orphan.wait()

        starting = asyncio.create_task(EmbeddedPostgres(data_dir).__aenter__())
        done, _ = await asyncio.wait({starting}, timeout=0.5)
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGCONT)

        assert not done
        server = await asyncio.wait_for(starting, 10)
        assert await one(server.dsn(), "SELECT count(*) FROM item") == 10
        await server.__aexit__(None, None, None)

    async def test_a_server_that_somebody_else_runs_is_left_alone(self, data_dir: Path) -> None:
        stranger = await start_orphan(data_dir, locked=False)

        with pytest.raises(StartError, match=r"postmaster\.pid"):
            await EmbeddedPostgres(data_dir).__aenter__()

        assert stranger.returncode is None
        await end(stranger)
        assert stranger.returncode == 0
