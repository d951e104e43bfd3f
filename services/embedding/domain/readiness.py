"""Keeps knowing how the backends are."""

import asyncio

from services.embedding.domain.ports import Backend


async def keep_checking(backend: Backend, *, every: float) -> None:
    """Hear how a backend is now and then every so many seconds, until cancelled."""
    while True:
        await backend.check()
        await asyncio.sleep(every)
