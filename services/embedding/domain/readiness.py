"""Keeps the state of the backends up to date."""

import asyncio

from services.embedding.domain.ports import Backend


async def keep_checking(backend: Backend, *, every: float) -> None:
    """Check a backend every so many seconds, until cancelled."""
    while True:
        await asyncio.sleep(every)
        await backend.check()
