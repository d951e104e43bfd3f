"""Collecting hints to be sent, whatever takes them; tests/contracts/test_hints.py sends them."""

import asyncio
from collections.abc import Collection

import pytest

from services.common.bus import outbox as module
from services.common.bus.outbox import MAX_KEY_BYTES, Outbox, keys_of, payloads

LONG = "k" * MAX_KEY_BYTES


class LostError(Exception):
    """The connection is lost."""


class Sender:
    """Takes what an outbox gives it, or fails."""

    def __init__(self) -> None:
        self.taken: list[list[str]] = []
        self.lost = False

    async def send(self, keys: Collection[str]) -> None:
        """Take the keys."""
        if self.lost:
            raise LostError
        self.taken.append(list(keys))


async def emptied(outbox: Outbox, sender: Sender) -> None:
    """Empty an outbox until nothing waits, or the sender fails."""
    emptying = asyncio.create_task(outbox.empty(sender.send))
    flushed = asyncio.create_task(outbox.flush())
    try:
        async with asyncio.timeout(5):
            await asyncio.wait({emptying, flushed}, return_when=asyncio.FIRST_COMPLETED)
            if emptying.done():
                await emptying
    finally:
        emptying.cancel()
        flushed.cancel()
        await asyncio.gather(emptying, flushed, return_exceptions=True)


class TestPayloads:
    @pytest.mark.parametrize(
        ("keys", "expected"),
        [([], []), (["a"], ["a"]), (["a", "b", "c"], ["a,b,c"]), (["知", "识"], ["知,识"])],
    )
    def test_joins_keys(self, keys: list[str], expected: list[str]) -> None:
        assert payloads(keys, max_bytes=7999) == expected

    @pytest.mark.parametrize("key", [LONG, "知" * (MAX_KEY_BYTES // 3), "short"])
    def test_keeps_every_key_and_the_limit(self, key: str) -> None:
        keys = [f"{number}{key}"[:MAX_KEY_BYTES] for number in range(1000)]

        messages = payloads(keys, max_bytes=7999)

        assert [key for message in messages for key in keys_of(message)] == keys
        assert max(len(message.encode()) for message in messages) <= 7999
        assert len(messages) <= sum(len(key.encode()) + 1 for key in keys) // 7000 + 1

    def test_fills_a_message_to_the_last_byte(self) -> None:
        messages = payloads(["a" * 3999, "b" * 3999, "c"], max_bytes=7999)

        assert [len(message) for message in messages] == [7999, 1]


class TestOutbox:
    async def test_keys_that_collect_are_sent_together_each_once(self) -> None:
        outbox, sender = Outbox(), Sender()
        for number in range(1000):
            outbox.notify(f"key-{number % 500}")

        await emptied(outbox, sender)

        assert [[f"key-{number}" for number in range(500)]] == sender.taken

    async def test_a_key_that_comes_while_it_is_being_sent_is_sent_again(self) -> None:
        outbox, sender = Outbox(), Sender()

        async def send(keys: Collection[str]) -> None:
            if not sender.taken:
                outbox.notify("a")
            await sender.send(keys)

        outbox.notify("a")
        emptying = asyncio.create_task(outbox.empty(send))
        await asyncio.wait_for(outbox.flush(), 5)
        emptying.cancel()

        assert sender.taken == [["a"], ["a"]]

    async def test_a_lost_connection_loses_no_key(self) -> None:
        outbox, sender = Outbox(), Sender()
        sender.lost = True
        outbox.notify("a")
        outbox.notify("b")
        with pytest.raises(LostError):
            await emptied(outbox, sender)
        outbox.notify("c")

        sender.lost = False
        await emptied(outbox, sender)

        assert sender.taken == [["a", "b", "c"]]

    async def test_of_too_many_the_oldest_are_forgotten_also_after_a_loss(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "MAX_WAITING_KEYS", 10)
        outbox, sender = Outbox(), Sender()
        for number in range(15):
            outbox.notify(str(number))

        async def fail(keys: Collection[str]) -> None:
            assert list(keys) == [str(number) for number in range(5, 15)]
            for number in range(15, 18):
                outbox.notify(str(number))
            raise LostError

        with pytest.raises(LostError):
            await outbox.empty(fail)
        await emptied(outbox, sender)

        assert sender.taken == [[str(number) for number in range(8, 18)]]

    async def test_an_empty_one_is_flushed_at_once(self) -> None:
        await asyncio.wait_for(Outbox().flush(), 5)

    @pytest.mark.parametrize("key", ["", "a,b", LONG + "x", "知" * 67])
    async def test_refuses_what_is_not_a_key(self, key: str) -> None:
        with pytest.raises(ValueError, match="not a key"):
            Outbox().notify(key)
