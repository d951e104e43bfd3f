"""Limits how many bad keys one address may send: a few at once, then one every few seconds."""

import ipaddress
from collections import OrderedDict
from collections.abc import Callable
from urllib.parse import unquote

_MOST_SOURCES = 10_000
_IPV6_SITE_BITS = 64


class Throttle:
    """A token bucket for each address; those that failed longest ago are forgotten."""

    def __init__(
        self,
        *,
        burst: int,
        per_minute: float,
        monotonic: Callable[[], float],
        most_sources: int = _MOST_SOURCES,
    ) -> None:
        self._burst = burst
        self._per_second = per_minute / 60
        self._monotonic = monotonic
        self._most_sources = most_sources
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, source: str) -> float:
        """Seconds until an address may try again; 0 if it may now."""
        return max(0.0, (1 - self._left(source)) / self._per_second)

    def count_failure(self, source: str) -> None:
        """Count a bad key from an address."""
        self._buckets[source] = (max(0.0, self._left(source) - 1), self._monotonic())
        self._buckets.move_to_end(source)
        if len(self._buckets) > self._most_sources:
            self._buckets.popitem(last=False)

    def _left(self, source: str) -> float:
        bucket = self._buckets.get(source)
        if bucket is None:
            return float(self._burst)
        left, at = bucket
        return min(self._burst, left + (self._monotonic() - at) * self._per_second)


def source_of(peer: str) -> str:
    """The address under which a peer such as `ipv4:10.0.0.7:40100` is counted.

    For IPv6 this is the /64 network, since whoever has one address there has all of them.
    """
    kind, _, address = unquote(peer).partition(":")
    if kind not in {"ipv4", "ipv6"}:
        return kind
    host = address.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        parsed = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, _IPV6_SITE_BITS), strict=False))
