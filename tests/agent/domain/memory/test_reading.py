from services.agent.domain.memory.models import LAST, Place
from services.agent.domain.memory.reading import MOST_MESSAGES, newest, pages_before
from services.agent.domain.memory.store import MemoryStore
from services.agent.domain.models import SessionId
from tests.agent.conversation import Conversation, SmallModel
from tests.contracts.agent_stores import ALICE

START = Place(0, LAST)


class Counting:
    """A store that notes how many messages it was asked for."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.asked: list[int] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def page(self, *given: object, **named: object) -> object:
        self.asked.append(named["most"])  # type: ignore[arg-type]  # an int
        return await self._store.page(*given, **named)  # type: ignore[arg-type]  # passed on


async def talked(turns: int) -> tuple[Counting, SessionId]:
    conversation = Conversation(SmallModel(100_000))
    for number in range(turns):
        await conversation.say(f"question {number} " + "x" * 380)
    return Counting(conversation.stores.memories), (await conversation.session()).id


class TestNewest:
    async def test_little_more_is_read_than_fits(self) -> None:
        store, session_id = await talked(300)

        found, more = await newest(
            store,  # type: ignore[arg-type]  # stands for one
            ALICE,
            session_id,
            after=START,
            before=LAST,
            tokens=2000,
        )

        assert more
        assert store.asked == [64]
        assert [each.sequence for each in found] == list(range(537, 601))

    async def test_it_goes_on_until_the_tokens_are_used_up(self) -> None:
        store, session_id = await talked(300)

        found, more = await newest(
            store,  # type: ignore[arg-type]  # stands for one
            ALICE,
            session_id,
            after=Place(21, LAST),
            before=581,
            tokens=11_000,
        )

        assert more
        assert store.asked == [64, 128]
        assert [each.sequence for each in found] == list(range(581 - 192, 581))

    async def test_all_there_is_is_read_where_it_fits(self) -> None:
        store, session_id = await talked(60)

        found, more = await newest(
            store,  # type: ignore[arg-type]  # stands for one
            ALICE,
            session_id,
            after=Place(21, LAST),
            before=LAST,
            tokens=10**6,
        )

        assert not more
        assert [each.sequence for each in found] == list(range(23, 121))

    async def test_a_bound_on_messages_holds(self) -> None:
        store, session_id = await talked(20)

        for most in (0, 7):
            found, more = await newest(
                store,  # type: ignore[arg-type]  # stands for one
                ALICE,
                session_id,
                after=START,
                before=LAST,
                tokens=10**6,
                most=most,
            )
            assert (len(found), more) == (most, True)
        assert max(store.asked) <= MOST_MESSAGES


class TestPagesBefore:
    async def test_the_turns_before_one_come_oldest_first(self) -> None:
        store, session_id = await talked(10)
        pages = pages_before(store, ALICE, session_id, before=11)  # type: ignore[arg-type]  # as above

        page = await pages(Place(5, LAST))

        assert [each.place for each in page.items] == [
            Place(7, 7),
            Place(7, 8),
            Place(9, 9),
            Place(9, 10),
        ]
        assert not page.more
