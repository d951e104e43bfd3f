"""Calls that are made at the same time, made as one.

While one is under way, others collect; so the more there are, the more go together, and a single
one does not wait. It is for those alone that can be made at once: whoever would have to wait for
something is told so, and makes its own call, which keeps nobody else waiting.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Generic, TypeAlias, TypeVar

from services.common.tasks import background_tasks

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

Make: TypeAlias = Callable[[Sequence[ItemT]], Awaitable[Sequence[ResultT | None]]]
"""Makes calls together; a result for each, None where it has to be made alone."""


class Together(Generic[ItemT, ResultT]):
    """One kind of call; calls are made together while a block of `open` lasts."""

    def __init__(self, name: str, make: Make[ItemT, ResultT], *, most: int = 64) -> None:
        """Calls that go through `make`.

        Args:
            name: what the log calls them.
            make: makes some of them.
            most: how many it is given at most.
        """
        self._name = name
        self._make = make
        self._most = most
        self._waiting: deque[tuple[ItemT, asyncio.Future[ResultT | None]]] = deque()
        self._wanted = asyncio.Event()
        self._open = False

    async def call(self, item: ItemT) -> ResultT | None:
        """The result of a call; None if it has to be made alone.

        Raises:
            Exception: what all the calls that were made with it have met.
        """
        if not self._open:
            return None
        result: asyncio.Future[ResultT | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, result))
        self._wanted.set()
        return await result

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Make calls together for as long as the block lasts."""
        async with background_tasks() as tasks:
            tasks.start(self._name, self._make_all())
            self._open = True
            try:
                yield
            finally:
                self._open = False
                self._settle([result for _, result in self._waiting], None)
                self._waiting.clear()

    async def _make_all(self) -> None:
        while True:
            await self._wanted.wait()
            taken = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
            if not self._waiting:
                self._wanted.clear()
            # Whoever left meanwhile does not want it any more.
            await self._make_some([each for each in taken if not each[1].done()])

    async def _make_some(
        self, taken: Sequence[tuple[ItemT, "asyncio.Future[ResultT | None]"]]
    ) -> None:
        if not taken:
            return
        try:
            made = await self._make([item for item, _ in taken])
        except Exception as error:  # noqa: BLE001 - it belongs to those who called
            for _, result in taken:
                if not result.done():
                    result.set_exception(error)
        except BaseException:
            self._settle([result for _, result in taken], None)
            raise
        else:
            for (_, result), each in zip(taken, made, strict=True):
                self._settle([result], each)

    def _settle(
        self, results: Sequence["asyncio.Future[ResultT | None]"], value: ResultT | None
    ) -> None:
        for result in results:
            if not result.done():
                result.set_result(value)
