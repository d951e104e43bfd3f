"""Keeps knowing how the backends are."""

import asyncio

from services.embedding.domain.ports import Backend


async def keep_checking(backend: Backend, *, every: float) -> None:
    """Hear every so many seconds how a backend is, until cancelled."""
    while True:
        await asyncio.sleep(every)
        await backend.check()
