"""A service that this one calls: the channel to it, and the metadata that the calls carry."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from grpc import aio

from services.common.channel import OutgoingCalls, open_channel
from services.common.clock import now
from services.common.identity import IdentitySigner, load_signing_key
from services.common.settings import ServerSettings


@dataclass(frozen=True, slots=True)
class Upstream:
    """A service that this one calls.

    Attributes:
        name: its name, as clients see it when it is down.
        channel: the channel to it.
        calls: makes the metadata that calls to it carry.
    """

    name: str
    channel: aio.Channel
    calls: OutgoingCalls


@asynccontextmanager
async def open_upstream(
    settings: ServerSettings,
    name: str,
    *,
    caller: str,
    target: str,
    idempotent_methods: Sequence[tuple[str, str]],
) -> AsyncIterator[Upstream]:
    """A service to call, for as long as the block lasts.

    Args:
        settings: say where the caller's signing key is, and how large a message may be.
        name: the service's name, which is the audience of the identity tokens.
        caller: this service's name, which is their issuer.
        target: see `open_channel`.
        idempotent_methods: see `open_channel`.

    Raises:
        FileNotFoundError: the signing key is missing.
        IdentityKeyError: its file holds something else.
    """
    key = load_signing_key(settings.identity_dir / f"{caller}.pem")
    signer = IdentitySigner(caller, key, audience=name, clock=now)
    async with open_channel(
        target,
        max_message_bytes=settings.max_message_bytes,
        idempotent_methods=idempotent_methods,
    ) as channel:
        yield Upstream(name, channel, OutgoingCalls(signer))
