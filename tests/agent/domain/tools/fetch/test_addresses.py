import pytest

from services.agent.domain.tools.fetch.addresses import is_public

PUBLIC = ["93.184.215.14", "1.1.1.1", "223.255.255.254", "2606:4700::1111", "2a00:1450::1"]
NOT_PUBLIC = [
    "0.0.0.0",
    "10.1.2.3",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:93.184.215.14",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::5db8:d70e",
    "64:ff9b:1::a00:1",
    "100::1",
    "2001::1",
    "2001:0:7f00:1::",
    "2001:20::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:a00:1::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%1",
    "2606:4700::1111%eth0",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
]
NO_ADDRESSES = ["", "localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "①27.0.0.1"]


class TestIsPublic:
    @pytest.mark.parametrize("address", PUBLIC)
    def test_what_the_internet_uses_is_public(self, address: str) -> None:
        assert is_public(address)

    @pytest.mark.parametrize("address", [*NOT_PUBLIC, *NO_ADDRESSES])
    def test_nothing_else_is(self, address: str) -> None:
        assert not is_public(address)
