"""Channels to other services, and the metadata of calls to them."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from grpc import aio

from services.common.identity import Identity, IdentitySigner
from services.common.interceptors.authentication import IDENTITY_KEY
from services.common.interceptors.request_id import REQUEST_ID_KEY, current_request_id
from services.common.keepalive import CLIENT_KEEPALIVE

# A proxy that the environment names is for the way out, not for calls between services.
_DIRECT = ("grpc.enable_http_proxy", 0)


@asynccontextmanager
async def open_channel(
    target: str,
    *,
    max_message_bytes: int,
    idempotent_methods: Sequence[tuple[str, str]] = (),
) -> AsyncIterator[aio.Channel]:
    """A channel to a service, for as long as the block lasts.

    Args:
        target: `host:port`, or a `dns:///` name that resolves to every replica.
        max_message_bytes: the largest message in either direction.
        idempotent_methods: `(package.Service, Method)` pairs that are retried on UNAVAILABLE.
    """
    options = [
        *CLIENT_KEEPALIVE,
        _DIRECT,
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.service_config", _service_config(idempotent_methods)),
    ]
    async with aio.insecure_channel(target, options=options) as channel:
        yield channel


def _service_config(idempotent_methods: Sequence[tuple[str, str]]) -> str:
    retry = {
        "name": [{"service": service, "method": method} for service, method in idempotent_methods],
        "retryPolicy": {
            "maxAttempts": 4,
            "initialBackoff": "0.1s",
            "maxBackoff": "1s",
            "backoffMultiplier": 2,
            "retryableStatusCodes": ["UNAVAILABLE"],
        },
    }
    return json.dumps(
        {
            "loadBalancingConfig": [{"round_robin": {}}],
            # A draining replica says so to its health watchers before it stops taking calls.
            "healthCheckConfig": {"serviceName": ""},
            # While most calls fail, retries only add to the load.
            "retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1},
            "methodConfig": [retry] if idempotent_methods else [],
        }
    )


class OutgoingCalls:
    """Makes the metadata of calls to one service: identity token and request id."""

    def __init__(self, signer: IdentitySigner) -> None:
        self._signer = signer

    def token(self, identity: Identity) -> str:
        """The token alone, for calls that act on behalf of many identities."""
        return self._signer.token(identity)

    def metadata(self, identity: Identity) -> tuple[tuple[str, str], ...]:
        """The metadata of a call on behalf of an identity."""
        token = (IDENTITY_KEY, self.token(identity))
        request_id = current_request_id()
        return (token, (REQUEST_ID_KEY, request_id)) if request_id else (token,)
