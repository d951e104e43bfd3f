import asyncio

from services.embedding.domain.readiness import keep_checking
from tests.embedding.memory_backend import MemoryBackend


class CountingBackend(MemoryBackend):
    """Counts its checks."""

    def __init__(self) -> None:
        super().__init__()
        self.checks: asyncio.Queue[None] = asyncio.Queue()

    async def check(self) -> None:
        self.checks.put_nowait(None)


class TestKeepChecking:
    async def test_it_checks_again_and_again_until_cancelled(self) -> None:
        backend = CountingBackend()
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            task = group.create_task(keep_checking(backend, every=0.001))
            for _ in range(3):
                await backend.checks.get()
            task.cancel()

        assert task.cancelled()
