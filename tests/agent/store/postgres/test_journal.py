"""What of a worker's writes only PostgreSQL can get wrong: several at once, and what they cost."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from services.agent.domain.chat import Ending
from services.agent.domain.endings import INTERRUPTED
from services.agent.domain.errors import FencedError
from services.agent.domain.ledger import ToolCallState
from services.agent.domain.messages import Draft, Message
from services.agent.domain.ports import RunJournal
from services.agent.domain.run_models import Run, RunState, StopReason, Usage, WhenBusy
from services.common.db import Pool, connection
from services.common.paging import Page
from services.common.session import Connection
from tests.agent.line import check_line
from tests.contracts.agent_stores import (
    ALICE,
    AT_ONCE,
    LEASE,
    Stores,
    agent_pool,
    answer,
    asking,
    call,
    postgres_stores,
    request_key,
    result_of,
    together_stores,
)

ENDED = Ending(RunState.FINISHED, StopReason.END_TURN)
SLOW = "slow"
"""Whoever commits a message of this text waits in the commit."""

_GATE = 20_260_601
_HOLD_COMMITS = f"""
CREATE FUNCTION hold_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.text = '{SLOW}' THEN
        PERFORM pg_advisory_xact_lock_shared({_GATE});
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER hold_commit AFTER INSERT ON agent.chat_message
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hold_commit();
"""
_LET_COMMITS_GO = "DROP TRIGGER hold_commit ON agent.chat_message; DROP FUNCTION hold_commit"
_WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


class Gate:
    """Holds back the commits of slow messages until it is opened."""

    def __init__(self, session: Connection) -> None:
        self._session = session

    async def close(self) -> None:
        await self._session.execute(f"SELECT pg_advisory_lock({_GATE})")

    async def open(self) -> None:
        await self._session.execute(f"SELECT pg_advisory_unlock({_GATE})")

    async def waiting(self, count: int) -> None:
        """Wait until so many sessions wait for a lock."""
        async with asyncio.timeout(10):
            while await self._session.fetchval(_WAITING) < count:  # noqa: ASYNC110 - of any kind
                await asyncio.sleep(0.01)


@pytest.fixture
async def gate(empty_tables: str) -> AsyncIterator[Gate]:
    session = await asyncpg.connect(empty_tables)
    await session.execute(_HOLD_COMMITS)
    try:
        yield Gate(session)
    finally:
        await session.execute("SELECT pg_advisory_unlock_all()")
        await session.execute(_LET_COMMITS_GO)
        await session.close()


@pytest.fixture
async def pool(empty_tables: str) -> AsyncIterator[Pool]:
    async with agent_pool(empty_tables, max_size=20) as pool:
        yield pool


@pytest.fixture(params=["alone", "together"])
async def stores(pool: Pool, request: pytest.FixtureRequest) -> AsyncIterator[Stores]:
    """Stores whose workers commit each write alone, or with others."""
    if request.param == "alone":
        yield postgres_stores(pool, queue_limit=100)
    else:
        async with together_stores(pool, queue_limit=100) as stores:
            yield stores


@asynccontextmanager
async def started(*work: Coroutine[Any, Any, Any]) -> AsyncIterator[list[Awaitable[Any]]]:
    """Tasks that run beside the block, which awaits them."""
    tasks: list[Awaitable[Any]] = [asyncio.ensure_future(each) for each in work]
    yield tasks
    await asyncio.gather(*tasks, return_exceptions=True)


async def sequences(stores: Stores, run: Run) -> list[int]:
    return [message.sequence for message in await stores.said(run)]


class TestOrderOfCommits:
    async def test_no_reader_passes_a_number_whose_commit_is_held_back(
        self, gate: Gate, stores: Stores
    ) -> None:
        """T-S2: two writers of one session; the first takes its number and commits late."""
        run = await stores.started("Hello")
        journal = stores.queue.journal(await stores.claimed())
        await gate.close()
        slow = journal.append_assistant(asking_slowly(), usage=Usage())
        async with started(slow) as [first]:
            await gate.waiting(1)
            async with started(stores.runs.start(ALICE, run.session_id, "fast")) as [second]:
                await gate.waiting(2)
                seen = await sequences(stores, run)
                session = await stores.sessions.get(ALICE, run.session_id)
                await gate.open()
                message, (_, question) = await first, await second

        assert (seen, session.last_sequence) == ([1], 1)
        assert (message.sequence, question.sequence) == (2, 3)
        assert await sequences(stores, run) == [1, 2, 3]

    async def test_a_tail_misses_nothing_while_many_write(self, stores: Stores, pool: Pool) -> None:
        """T-S2: a reader that goes on behind the last number it saw sees every one in its turn."""
        run = await stores.started("Hello")
        journal = stores.queue.journal(await stores.claimed())
        done = asyncio.Event()
        seen: list[int] = []

        async def tail() -> None:
            while True:
                last = done.is_set()
                page = await stores.messages.after(
                    ALICE, run.session_id, len(seen), most=1000, max_bytes=10**9
                )
                seen.extend(message.sequence for message in page.items)
                if last:
                    return

        async def work() -> None:
            for number in range(40):
                asked = call(f"c{number}")
                await journal.append_assistant(asking(asked), usage=Usage())
                await journal.append_tool_results([result_of(asked)])

        async def say() -> None:
            for _ in range(15):
                await stores.runs.start(ALICE, run.session_id, "x")

        reading = asyncio.ensure_future(tail())
        await asyncio.gather(work(), say(), say())
        done.set()
        await reading

        assert list(range(1, 112)) == seen
        await check_line(pool)


class TestFence:
    @pytest.mark.parametrize("write", ["ask", "answer", "finish"])
    async def test_who_is_overtaken_amid_a_write_changes_nothing(
        self, gate: Gate, stores: Stores, pool: Pool, write: str
    ) -> None:
        """The session is locked and its numbers are read by then; the run is another's."""
        run = await stores.started("Hello")
        journal = stores.queue.journal(await stores.claimed())
        await journal.append_assistant(asking(call("a")), usage=Usage())
        before = await stores.runs.get(ALICE, run.id)
        async with connection(pool) as other:
            overtaking = other.transaction()
            await overtaking.start()
            await other.execute("UPDATE run SET epoch = epoch + 1")
            async with started(one_of(journal, write)) as [late]:
                await gate.waiting(1)
                await overtaking.commit()
                with pytest.raises(FencedError):
                    await late

        assert before == await stores.runs.get(ALICE, run.id)
        assert await sequences(stores, run) == [1, 2]
        [told] = await stores.runs.tool_calls(ALICE, run.id, Page())
        assert ToolCallState.PLANNED is told.state
        await check_line(pool)

    @pytest.mark.parametrize("write", ["ask", "answer", "finish"])
    async def test_a_wish_to_stop_that_comes_first_fences_a_write_that_waits(
        self, gate: Gate, stores: Stores, pool: Pool, write: str
    ) -> None:
        """The message of an interrupt is held back in its commit, with the wish to stop."""
        run = await stores.started("Hello")
        journal = stores.queue.journal(await stores.claimed())
        await journal.append_assistant(asking(call("a")), usage=Usage())
        await gate.close()
        interrupt = stores.runs.start(ALICE, run.session_id, SLOW, when_busy=WhenBusy.INTERRUPT)
        async with started(interrupt) as [first]:
            await gate.waiting(1)
            async with started(one_of(journal, write)) as [late]:
                await gate.waiting(2)
                await gate.open()
                await first
                with pytest.raises(FencedError):
                    await late
        [_, _] = await journal.finish(INTERRUPTED)

        said = await stores.said(run)
        assert [each.text for each in said[:4]] == ["Hello", "", SLOW, "cancelled by the user"]
        assert [each.sequence for each in said] == [1, 2, 3, 4, 5]
        await check_line(pool)


class TestEnd:
    async def test_a_message_that_is_being_accepted_is_not_left_behind(
        self, gate: Gate, stores: Stores, pool: Pool
    ) -> None:
        """The end has to wait for it, and must then see that there is a run to line up."""
        run = await stores.started("Hello")
        journal = stores.queue.journal(await stores.claimed())
        await gate.close()
        async with started(stores.runs.start(ALICE, run.session_id, SLOW)) as [first]:
            await gate.waiting(1)
            async with started(journal.finish(ENDED, [answer()])) as [end]:
                await gate.waiting(2)
                await gate.open()
                new, _ = await first
                await end

        await check_line(pool)
        assert new.id == (await stores.claimed()).run.id

    async def test_a_message_that_waits_for_the_end_is_in_line_at_once(
        self, gate: Gate, stores: Stores, pool: Pool
    ) -> None:
        run = await stores.started("Hello")
        journal = stores.queue.journal(await stores.claimed())
        await gate.close()
        async with started(journal.finish(ENDED, [answer(SLOW)])) as [end]:
            await gate.waiting(1)
            async with started(stores.runs.start(ALICE, run.session_id, "More")) as [second]:
                await gate.waiting(2)
                await gate.open()
                await end
                new, message = await second

        assert message.sequence == 3
        await check_line(pool)
        assert new.id == (await stores.claimed()).run.id


class TestTogether:
    """Writes of many runs in one statement: each is as if it were alone."""

    async def test_each_run_gets_its_own_numbers_and_record(self, pool: Pool) -> None:
        async with together_stores(pool) as stores:
            runs = [await stores.started() for _ in range(30)]
            claims = await stores.queue.claim(lease=LEASE, most=30)
            journals = [stores.queue.journal(claim) for claim in claims]

            for _ in range(3):
                await asyncio.gather(
                    *(
                        each.append_assistant(asking(call("a")), usage=Usage(1, 2))
                        for each in journals
                    )
                )
                told = await asyncio.gather(
                    *(each.append_tool_results([result_of(call("a"))]) for each in journals)
                )
            ends = await asyncio.gather(*(each.finish(ENDED, [answer()]) for each in journals))

            assert {(7, "seen")} == {(each.sequence, each.text) for [each] in told}
            assert {8} == {message.sequence for [message] in ends}
            for run in runs:
                said = await stores.said(run)
                assert list(range(1, 9)) == [each.sequence for each in said]
                assert {run.id} == {each.run_id for each in said}
                ended = await stores.runs.get(ALICE, run.id)
                assert (3, Usage(3, 6)) == (ended.step_count, ended.usage)
                calls = await stores.runs.tool_calls(ALICE, run.id, Page())
                assert [each.state for each in calls] == [ToolCallState.DONE] * 3
        await check_line(pool)

    async def test_one_that_has_to_wait_keeps_no_other_waiting(
        self, gate: Gate, pool: Pool
    ) -> None:
        async with together_stores(pool) as stores:
            runs = [await stores.started() for _ in range(5)]
            claims = await stores.queue.claim(lease=LEASE, most=5)
            journals = {claim.run.id: stores.queue.journal(claim) for claim in claims}
            stuck = journals.pop(runs[0].id)
            await gate.close()
            async with started(stores.runs.start(ALICE, runs[0].session_id, SLOW)) as [first]:
                await gate.waiting(1)
                async with started(stuck.append_assistant(asking(call("a")), usage=Usage())) as [
                    late
                ]:
                    done = await asyncio.gather(
                        *(
                            each.append_assistant(asking(call("a")), usage=Usage())
                            for each in journals.values()
                        )
                    )
                    await gate.waiting(2)
                    await gate.open()
                    await first
                    message = await late

        assert [each.sequence for each in done] == [2, 2, 2, 2]
        assert message.sequence == 3
        await check_line(pool)

    async def test_one_that_is_lost_is_refused_and_the_others_are_not(self, pool: Pool) -> None:
        async with together_stores(pool) as stores:
            for _ in range(4):
                await stores.started()
            lost = await stores.queue.claim(lease=AT_ONCE, most=2)
            held = await stores.queue.claim(lease=LEASE, most=4)
            journals = [stores.queue.journal(claim) for claim in (*lost, *held)]

            outcomes = await asyncio.gather(
                *(each.append_assistant(asking(call("a")), usage=Usage()) for each in journals),
                return_exceptions=True,
            )

        assert [FencedError] * 2 == [type(each) for each in outcomes[:2]]
        assert [each.sequence for each in outcomes[2:] if isinstance(each, Message)] == [2] * 4
        await check_line(pool)

    async def test_one_that_cannot_be_stored_spoils_no_other(self, pool: Pool) -> None:
        async with together_stores(pool) as stores:
            for _ in range(3):
                await stores.started()
            claims = await stores.queue.claim(lease=LEASE, most=3)
            bad, *good = [stores.queue.journal(claim) for claim in claims]
            huge = replace(asking(call("a")), text="x" * (1024 * 1024 + 1))

            failed, *told = await asyncio.gather(
                bad.append_assistant(huge, usage=Usage()),
                *(each.append_assistant(asking(call("a")), usage=Usage()) for each in good),
                return_exceptions=True,
            )

        assert isinstance(failed, asyncpg.CheckViolationError)
        assert [each.sequence for each in told if isinstance(each, Message)] == [2, 2]
        await check_line(pool)


class TestCost:
    async def test_a_step_is_two_statements_and_an_end_or_a_start_is_one(
        self, empty_tables: str
    ) -> None:
        """Each of them commits by itself, in one round trip."""
        async with agent_pool(empty_tables, max_size=1) as pool:
            count = Counter[str]()
            async with together_stores(pool) as stores:
                await live(stores, Counter())
                async with connection(pool) as lent:
                    lent.add_query_logger(lambda logged: count.update([logged.query]))

                taken = await live(stores, count)

        assert taken == {"start": 1, "step": 2, "end": 1}


async def live(stores: Stores, count: Counter[str]) -> dict[str, int]:
    """How many statements the parts of a run's life take, as they are counted meanwhile."""
    session = await stores.session()
    parts: dict[str, int] = {}

    async def part(name: str, *work: Awaitable[object]) -> None:
        before = count.total()
        for each in work:
            await each
        await asyncio.sleep(0)
        parts[name] = count.total() - before

    await part("start", stores.runs.start(ALICE, session.id, "Hi", request=request_key("x")))
    journal = stores.queue.journal(await stores.claimed())
    await part(
        "step",
        journal.append_assistant(asking(call("a")), usage=Usage(), starting=[0]),
        journal.append_tool_results([result_of(call("a"))], then=RunState.THINKING),
    )
    await part("end", journal.finish(ENDED, [answer()]))
    return parts


def one_of(journal: RunJournal, write: str) -> Coroutine[Any, Any, object]:
    """A write of this kind."""
    match write:
        case "ask":
            return journal.append_assistant(asking(call("z")), usage=Usage())
        case "answer":
            return journal.append_tool_results([result_of(call("a"))])
        case _:
            return journal.finish(ENDED, [answer()])


def asking_slowly() -> Draft:
    """A message that asks for a tool, and whose commit waits at the gate."""
    return replace(asking(call("a")), text=SLOW)
