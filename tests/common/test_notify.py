"""Sending wake-ups, on a real server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from services.common.notify import MAX_KEY_BYTES, open_notifier, payloads

LONG = "k" * MAX_KEY_BYTES


@asynccontextmanager
async def _heard(dsn: str, channel: str) -> AsyncIterator["asyncio.Queue[str]"]:
    """The messages that the server passes on over `channel`."""
    messages: asyncio.Queue[str] = asyncio.Queue()
    session = await asyncpg.connect(dsn)
    try:
        await session.add_listener(channel, lambda *message: messages.put_nowait(message[-1]))
        yield messages
    finally:
        await session.close()


async def _terminate(dsn: str, application_name: str) -> None:
    session = await asyncpg.connect(dsn)
    query = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = "
    try:
        assert await session.fetchval(f"{query}$1", application_name)
    finally:
        await session.close()


class TestPayloads:
    @pytest.mark.parametrize(
        ("keys", "expected"),
        [([], []), (["a"], ["a"]), (["a", "b", "c"], ["a,b,c"]), (["知", "识"], ["知,识"])],
    )
    def test_joins_keys(self, keys: list[str], expected: list[str]) -> None:
        assert payloads(keys) == expected

    @pytest.mark.parametrize("key", [LONG, "知" * (MAX_KEY_BYTES // 3), "short"])
    def test_keeps_every_key_and_the_servers_limit(self, key: str) -> None:
        keys = [f"{number}{key}"[:MAX_KEY_BYTES] for number in range(1000)]

        messages = payloads(keys)

        assert ",".join(messages).split(",") == keys
        assert max(len(message.encode()) for message in messages) <= 7999
        assert len(messages) <= sum(len(key.encode()) + 1 for key in keys) // 7000 + 1

    def test_fills_a_message_to_the_last_byte(self) -> None:
        assert [len(message) for message in payloads(["a" * 3999, "b" * 3999, "c"])] == [7999, 1]


class TestNotifier:
    async def test_many_keys_travel_in_few_messages_each_once(self, empty_database: str) -> None:
        async with (
            _heard(empty_database, "news") as messages,
            open_notifier(empty_database, "news", application_name="t") as notifier,
        ):
            for number in range(1000):
                notifier.notify(f"key-{number % 500}")
            await asyncio.wait_for(notifier.flush(), 10)
            keys: list[str] = []
            while len(keys) < 500:
                keys += (await asyncio.wait_for(messages.get(), 5)).split(",")

        assert sorted(keys) == sorted(f"key-{number}" for number in range(500))
        assert messages.empty()

    async def test_what_waits_is_sent_before_the_end(self, empty_database: str) -> None:
        async with _heard(empty_database, "news") as messages:
            async with open_notifier(empty_database, "news", application_name="t") as notifier:
                notifier.notify("last")

            assert await asyncio.wait_for(messages.get(), 5) == "last"

    async def test_a_lost_connection_loses_no_key(self, empty_database: str) -> None:
        async with (
            _heard(empty_database, "news") as messages,
            open_notifier(empty_database, "news", application_name="lost") as notifier,
        ):
            notifier.notify("before")
            assert await asyncio.wait_for(messages.get(), 5) == "before"
            await _terminate(empty_database, "lost")

            notifier.notify("after")

            assert await asyncio.wait_for(messages.get(), 10) == "after"

    async def test_never_fails_for_want_of_a_database(self) -> None:
        dsn = "postgresql://u:p@127.0.0.1:1/none"

        async with asyncio.timeout(5), open_notifier(dsn, "n", application_name="t") as notifier:
            for number in range(100):
                notifier.notify(str(number))

    @pytest.mark.parametrize("key", ["", "a,b", LONG + "x", "知" * 67])
    async def test_refuses_what_is_not_a_key(self, empty_database: str, key: str) -> None:
        async with open_notifier(empty_database, "news", application_name="t") as notifier:
            with pytest.raises(ValueError, match="not a key"):
                notifier.notify(key)
