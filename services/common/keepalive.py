"""Options by which both ends of a connection notice within seconds that the other is gone.

The two sets belong together: a client that pings more often than the server allows is cut off. With
a keepalive but no ping timeout, a frozen peer is noticed only after a minute.
"""

_BOTH = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
)

SERVER_KEEPALIVE = (
    *_BOTH,
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
)
"""Options of a server."""

CLIENT_KEEPALIVE = (
    *_BOTH,
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 5_000),
)
"""Options of a channel, which also reconnects soon after the server is back."""
