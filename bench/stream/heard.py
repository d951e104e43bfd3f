"""What came on streams, and when."""

import asyncio
import time

from chatmind.gateway.v1 import gateway_service_pb2


class Heard:
    """Counts what came, and waits for more.

    Attributes:
        count: how many messages came.
    """

    def __init__(self) -> None:
        self.count = 0
        self._goal = 0
        self._reached = asyncio.Event()

    def on_message(self, _: int, __: bytes) -> None:
        """One more."""
        self.count += 1
        if self.count == self._goal:
            self._reached.set()

    async def until(self, count: int) -> None:
        """Wait until so many came in all."""
        self._goal = count
        self._reached.clear()
        if self.count < count:
            async with asyncio.timeout(60):
                await self._reached.wait()


class Timed(Heard):
    """Notes how long each message took that tells in its text when it was made.

    Attributes:
        seconds: how long each took.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def on_message(self, number: int, message: bytes) -> None:
        """One more."""
        now = time.monotonic_ns()
        event = gateway_service_pb2.StreamMessagesResponse.FromString(message)
        self.seconds.append((now - int(event.message.text.rstrip("x"))) / 1e9)
        super().on_message(number, message)


class Arrivals(Heard):
    """Notes when each message came.

    Attributes:
        at: the time of each, by its stream and its sequence.
    """

    def __init__(self) -> None:
        super().__init__()
        self.at: dict[tuple[int, int], float] = {}

    def on_message(self, number: int, message: bytes) -> None:
        """One more, unless it is of another kind."""
        event = gateway_service_pb2.StreamMessagesResponse.FromString(message)
        if event.HasField("message"):
            self.at[number, event.message.sequence] = time.monotonic()
            super().on_message(number, message)
