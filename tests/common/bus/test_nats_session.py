"""Connections to NATS, on real servers."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from cli.local.ports import free_ports
from services.common.bus.nats_session import open_client
from services.common.errors import UnavailableError
from tests.nats_server import NatsServer, running_nats

NOBODY = f"nats://127.0.0.1:{next(free_ports())}"


class TestOpenClient:
    async def test_a_lost_connection_ends_the_block(self) -> None:
        async def lose(server: NatsServer) -> None:
            async with open_client(server.url, name="t"):
                server.kill()
                await asyncio.Event().wait()

        async with running_nats() as server, asyncio.timeout(20):
            with pytest.raises(UnavailableError):
                await lose(server)

    async def test_what_the_block_raises_passes_unchanged(self) -> None:
        async with running_nats() as server:
            with pytest.raises(LookupError):
                async with open_client(server.url, name="t"):
                    raise LookupError

    async def test_cancellation_passes_through(self) -> None:
        connected = asyncio.Event()

        async def hold() -> None:
            async with open_client(server.url, name="t"):
                connected.set()
                await asyncio.Event().wait()

        async with running_nats() as server:
            holding = asyncio.create_task(hold())
            await asyncio.wait_for(connected.wait(), 20)
            holding.cancel()
            with pytest.raises(asyncio.CancelledError):
                await holding

    async def test_of_several_servers_any_will_do(self) -> None:
        async with running_nats() as server:
            for url in (f"{NOBODY},{server.url}", f"{server.url},{NOBODY}"):
                async with open_client(url, name="t") as client:
                    assert await client.rtt() > 0

    async def test_a_server_that_is_away_or_silent_is_unavailable_in_time(self) -> None:
        async with AsyncExitStack() as stack:

            async def say_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                stack.callback(writer.close)

            silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
            await stack.enter_async_context(silent)
            port = silent.sockets[0].getsockname()[1]
            for url in (NOBODY, f"nats://127.0.0.1:{port}"):
                async with asyncio.timeout(15):
                    with pytest.raises(UnavailableError):
                        async with open_client(url, name="t"):
                            pass

    @pytest.mark.parametrize(
        ("options", "credentials"),
        [
            (("--user", "alice", "--pass", "s:e/c@ret"), "alice:s%3Ae%2Fc%40ret@"),
            (("--auth", "to/k@en"), "to%2Fk%40en@"),
        ],
        ids=["password", "token"],
    )
    async def test_credentials_are_those_in_the_address(
        self, options: tuple[str, ...], credentials: str
    ) -> None:
        async with running_nats(*options) as server:
            async with open_client(f"nats://{credentials}{server.address}", name="t") as client:
                assert await client.rtt() > 0
            for wrong in ("", "mallory:guess@", "guess@"):
                with pytest.raises(UnavailableError) as refused:
                    async with open_client(f"nats://{wrong}{server.address}", name="t"):
                        pass
                assert "guess" not in repr(refused.value.__cause__)

    async def test_a_server_that_forbids_a_subject_counts_as_lost(self, tmp_path: Path) -> None:
        """Otherwise nobody would know that nothing can be heard."""
        configuration = tmp_path / "nats.conf"
        permissions = '{ subscribe: "other" }'
        configuration.write_text(
            f"authorization {{ users = [{{ user: a, password: b, permissions: {permissions} }}] }}"
        )

        async def listen_in_vain(server: NatsServer) -> None:
            async with open_client(f"nats://a:b@{server.address}", name="t") as client:
                await client.subscribe("chatmind.agent.1")
                await asyncio.Event().wait()

        async with running_nats("--config", str(configuration)) as server, asyncio.timeout(20):
            with pytest.raises(UnavailableError) as refused:
                await listen_in_vain(server)

        assert "permissions violation" in repr(refused.value.__cause__)
