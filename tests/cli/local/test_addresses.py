"""Whether addresses are to be had."""

import asyncio
import socket
from collections.abc import Iterator

import pytest

from cli.local.addresses import check_addresses, wait_until_free
from cli.local.errors import StartError
from cli.local.ports import free_ports


@pytest.fixture
def taken() -> Iterator[socket.socket]:
    """A socket that listens."""
    with socket.create_server(("127.0.0.1", next(free_ports()))) as server:
        yield server


def address(server: socket.socket) -> str:
    return f"127.0.0.1:{server.getsockname()[1]}"


class TestWaitUntilFree:
    async def test_free_ones_are_free_at_once(self) -> None:
        ports = free_ports()
        await wait_until_free({f"A{n}": f"127.0.0.1:{next(ports)}" for n in range(3)}, patience=0)

    async def test_one_that_stays_taken_is_told(self, taken: socket.socket) -> None:
        with pytest.raises(StartError) as caught:
            await wait_until_free({"A_LISTEN": address(taken)}, patience=0.15)

        assert str(caught.value) == (
            f"{address(taken)} is in use by another program; A_LISTEN sets another"
        )

    async def test_one_that_becomes_free_is_waited_for(self, taken: socket.socket) -> None:
        asyncio.get_running_loop().call_later(0.2, taken.close)
        await wait_until_free({"A_LISTEN": address(taken)}, patience=20)

        assert taken.fileno() == -1

    async def test_a_port_whose_connections_linger_is_free(self, taken: socket.socket) -> None:
        """After a server's end its connections wait in TIME_WAIT; that hinders nobody."""
        wanted = address(taken)
        with socket.create_connection(taken.getsockname()):
            connection, _ = taken.accept()
            connection.close()
        taken.close()

        await wait_until_free({"A_LISTEN": wanted}, patience=0)


class TestCheckAddresses:
    def test_one_that_is_free_or_in_use_is_an_address(self, taken: socket.socket) -> None:
        check_addresses({"A": address(taken), "B": f"127.0.0.1:{next(free_ports())}"})

    @pytest.mark.parametrize(
        "wrong",
        ["", "8050", ":8050", "localhost", "127.0.0.1:", "127.0.0.1:0", "a:65536", "a:-1", "a:x"],
    )
    def test_what_is_no_address_is_told_by_its_variable(self, wrong: str) -> None:
        with pytest.raises(StartError) as caught:
            check_addresses({"A_LISTEN": wrong})

        assert str(caught.value) == "A_LISTEN: must be host:port, such as 127.0.0.1:8050"

    def test_an_address_of_another_machine_is_told(self) -> None:
        told = r"^A_LISTEN: cannot listen on 192\.0\.2\.1:8050: Cannot assign"
        with pytest.raises(StartError, match=told):
            check_addresses({"A_LISTEN": "192.0.2.1:8050"})
