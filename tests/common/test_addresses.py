"""Addresses to listen on."""

import errno
import socket

import pytest

from services.common.addresses import bind_error, parse_address


class TestParseAddress:
    @pytest.mark.parametrize(
        ("address", "parts"),
        [
            ("127.0.0.1:8050", (socket.AF_INET, "127.0.0.1", 8050)),
            ("localhost:0", (socket.AF_INET, "localhost", 0)),
            ("[::1]:80", (socket.AF_INET6, "::1", 80)),
        ],
    )
    def test_brackets_tell_ipv6(
        self, address: str, parts: tuple[socket.AddressFamily, str, int]
    ) -> None:
        assert parse_address(address) == parts


class TestBindError:
    def test_a_free_address_has_none(self) -> None:
        assert bind_error("127.0.0.1:0") is None

    def test_a_taken_one_is_in_use(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            error = bind_error(f"127.0.0.1:{server.getsockname()[1]}")

        assert error is not None
        assert error.errno == errno.EADDRINUSE

    def test_another_machine_s_is_not_available(self) -> None:
        error = bind_error("192.0.2.1:8050")

        assert error is not None
        assert error.errno == errno.EADDRNOTAVAIL
