"""The gateway as a process, and as tools see it."""

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from chatmind.gateway.v1 import access_service_pb2, access_service_pb2_grpc
from grpc import aio

from cli.local.ports import free_ports
from services.gateway.api.methods import services
from services.gateway.domain.keys import parse
from tests.gateway.installation import (
    ENOUGH,
    Installation,
    bearer,
    write_identity_keys,
)

ROOT = Path(__file__).parents[2]
BUF = Path(sys.executable).with_name("buf")
START_SECONDS = 30.0


def environment(folder: Path, database: str, **variables: str) -> dict[str, str]:
    """What a gateway is told."""
    write_identity_keys(folder / "identity")
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{ROOT}:{ROOT / 'gen'}",
        "CHATMIND_DATABASE_URL": database,
        "CHATMIND_GATEWAY_IDENTITY_DIR": str(folder / "identity"),
        "CHATMIND_GATEWAY_LISTEN": f"127.0.0.1:{next(free_ports())}",
        "CHATMIND_GATEWAY_HTTP_LISTEN": "127.0.0.1:0",
        **variables,
    }


async def run(told: Mapping[str, str], *arguments: str) -> tuple[int, str]:
    """Run a command to its end; gives its exit code and its log."""
    async with started(told, *arguments) as process:
        async with asyncio.timeout(START_SECONDS):
            _, log = await process.communicate()
    return process.returncode or 0, log.decode()


@asynccontextmanager
async def started(
    told: Mapping[str, str], *arguments: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process of the gateway, killed at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.gateway", *arguments,
        env=dict(told), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def identify(address: str, key: str) -> str:
    """The user that a key stands for."""
    async with aio.insecure_channel(address) as channel:
        stub = access_service_pb2_grpc.AccessServiceStub(channel)
        answer = await stub.GetIdentity(
            access_service_pb2.GetIdentityRequest(), metadata=bearer(key), wait_for_ready=True
        )
        return f"{answer.api_key.tenant}/{answer.api_key.user_id}"


class TestProcess:
    async def test_it_starts_on_an_empty_database_makes_a_key_and_stops_when_asked(
        self, tmp_path: Path, empty_database: str
    ) -> None:
        key_file = tmp_path / "admin.key"
        told = environment(tmp_path, empty_database, CHATMIND_GATEWAY_ADMIN_KEY_FILE=str(key_file))
        async with started(told) as process:
            async with asyncio.timeout(START_SECONDS):
                while not key_file.exists():
                    assert process.returncode is None
                    await asyncio.sleep(0.05)
                key = key_file.read_text().strip()
                who = await identify(told["CHATMIND_GATEWAY_LISTEN"], key)
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(START_SECONDS):
                _, log = await process.communicate()

        assert who == "default/admin"
        assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
        assert process.returncode == 0
        lines = [json.loads(line) for line in log.decode().splitlines()]
        assert {"serving", "call", "stopped"} <= {line["event"] for line in lines}
        assert key.split("_")[2] not in log.decode()

    async def test_bootstrap_makes_a_key_on_an_empty_database(
        self, tmp_path: Path, empty_database: str
    ) -> None:
        key_file = tmp_path / "admin.key"
        told = environment(tmp_path, empty_database)

        code, log = await run(told, "bootstrap", "--key-file", str(key_file))

        secret = key_file.read_text().strip()
        assert code == 0
        assert parse(secret) is not None
        assert secret.split("_")[1] in log
        assert secret.split("_")[2] not in log

    async def test_what_keeps_it_from_starting_is_told_in_a_line(self, tmp_path: Path) -> None:
        nowhere = f"postgresql://someone:secret@127.0.0.1:{next(free_ports())}/none"
        told = environment(tmp_path, nowhere)

        code, log = await run(told, "migrate")

        assert code == 1
        assert "cannot be reached" in log
        assert "secret" not in log
        assert "Traceback" not in log

    async def test_settings_that_are_wrong_are_named(self, tmp_path: Path) -> None:
        told = environment(tmp_path, "", CHATMIND_GATEWAY_HEARTBEAT_SECONDS="0")
        del told["CHATMIND_DATABASE_URL"]

        code, log = await run(told)

        assert code == 2
        assert "CHATMIND_GATEWAY_HEARTBEAT_SECONDS: " in log
        assert "\nCHATMIND_DATABASE_URL: " in f"\n{log}"


async def buf_curl(gateway: Installation, *arguments: str) -> str:
    """What `buf curl` says, asked without any schema of ours."""
    process = await asyncio.create_subprocess_exec(
        BUF, "curl", "--protocol", "grpc", "--http2-prior-knowledge", *arguments,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(ENOUGH):
        said, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return said.decode()


class TestReflection:
    async def test_every_service_is_listed(self, gateway: Installation) -> None:
        said = await buf_curl(gateway, "--list-services", f"http://127.0.0.1:{gateway.port}")

        assert set(services()) <= set(said.split())

    async def test_a_tool_can_call_without_a_schema(self, gateway: Installation) -> None:
        said = await buf_curl(
            gateway,
            "--header",
            f"authorization: Bearer {gateway.key}",
            f"http://127.0.0.1:{gateway.port}/chatmind.gateway.v1.AccessService/GetIdentity",
        )

        assert json.loads(said)["apiKey"]["userId"] == "admin"

    async def test_forwarded_services_are_called_alike(self, gateway: Installation) -> None:
        data = json.dumps({"documentId": "0190a5b8-0000-7000-8000-000000000000"})

        said = await buf_curl(
            gateway,
            "--header",
            f"authorization: Bearer {gateway.key}",
            "--data",
            data,
            f"http://127.0.0.1:{gateway.port}"
            "/chatmind.knowledge.v1.KnowledgeService/ReingestDocument",
        )

        assert said
        assert gateway.knowledge.calls == [
            "/chatmind.knowledge.v1.KnowledgeService/ReingestDocument"
        ]
