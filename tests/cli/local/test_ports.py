"""Free ports."""

import socket

import pytest

from cli.local import ports
from cli.local.ports import free_ports, is_free


class TestFreePorts:
    def test_start_anywhere_in_the_range_that_clients_leave_alone(self) -> None:
        found = {next(free_ports()) for _ in range(20)}

        assert len(found) > 1
        assert all(20_000 <= port <= 32_767 for port in found)

    def test_go_on_from_the_wanted_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ports, "is_free", lambda port: port % 2 == 0)

        assert list(free_ports(32_761)) == [32_762, 32_764, 32_766]

    def test_a_wanted_one_above_the_range_is_tried_alone(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ports, "is_free", lambda port: True)

        assert list(free_ports(54_321)) == [54_321]


class TestIsFree:
    def test_tells_whether_somebody_listens(self) -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            port = listener.getsockname()[1]

            assert not is_free(port)
        assert is_free(port)
