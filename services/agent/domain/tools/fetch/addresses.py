"""Tells public internet addresses from all others. Pure.

`ipaddress.is_global` is not enough: up to Python 3.11 at least it holds addresses for global that
lead to this machine or its neighbours, such as 64:ff9b::7f00:1 and fec0::1. So this has its own
list, of what IANA's registries of special-purpose addresses name; of IPv6, only what is handed out
to the internet is public at all, which leaves out every form that carries an IPv4 address.
"""

from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final

_NOT_PUBLIC_4: Final = tuple(
    IPv4Network(each)
    for each in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "168.63.129.16/32",  # the host of an Azure machine
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",
    )
)
_INTERNET_6: Final = IPv6Network("2000::/3")
_NOT_PUBLIC_6: Final = tuple(
    IPv6Network(each)
    for each in (
        "2001::/23",  # Teredo, benchmarks, ORCHID
        "2001:db8::/32",
        "2002::/16",  # 6to4
        "2620:4f:8000::/48",
        "3fff::/20",
    )
)


def is_public(address: str) -> bool:
    """Whether this is the address of a machine in the public internet; no other spelling is read.

    Args:
        address: as a resolver gives it, such as "93.184.215.14"; one with a zone is never public.
    """
    try:
        four = IPv4Address(address)
    except AddressValueError:
        return _is_public_6(address)
    return not any(four in network for network in _NOT_PUBLIC_4)


def _is_public_6(address: str) -> bool:
    try:
        six = IPv6Address(address)
    except AddressValueError:
        return False
    if six.scope_id is not None or six not in _INTERNET_6:
        return False
    return not any(six in network for network in _NOT_PUBLIC_6)
