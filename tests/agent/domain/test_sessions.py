import pytest

from services.agent.domain import hints
from services.agent.domain.models import SessionId
from services.agent.domain.sessions import Sessions
from services.common.errors import NotFoundError
from services.common.ids import new_id
from services.common.paging import Page
from tests.agent.hints import LocalHints
from tests.contracts.agent_stores import ALICE, BOB, Stores, memory_stores


@pytest.fixture
def stores() -> Stores:
    return memory_stores()


@pytest.fixture
def notified() -> LocalHints:
    return LocalHints()


@pytest.fixture
def sessions(stores: Stores, notified: LocalHints) -> Sessions:
    return Sessions(stores.sessions, messages=stores.messages, notifier=notified)


class TestMessages:
    async def test_pages_go_both_ways(self, stores: Stores, sessions: Sessions) -> None:
        session = await stores.session()
        for text in "abc":
            await stores.runs.start(ALICE, session.id, text)

        async def texts(page: Page, *, newest_first: bool) -> list[str]:
            found = await sessions.messages(ALICE, session.id, page, newest_first=newest_first)
            return [message.text for message in found.items]

        assert await texts(Page(2), newest_first=False) == ["a", "b"]
        assert await texts(Page(2, ("2",)), newest_first=False) == ["c"]
        assert await texts(Page(2), newest_first=True) == ["c", "b"]
        assert await texts(Page(2, ("2",)), newest_first=True) == ["a"]

    async def test_others_are_told_there_is_no_such_session(
        self, stores: Stores, sessions: Sessions
    ) -> None:
        session = await stores.session()

        for identity, session_id in ((BOB, session.id), (ALICE, SessionId(new_id()))):
            with pytest.raises(NotFoundError):
                await sessions.messages(identity, session_id, Page())


class TestDelete:
    async def test_watchers_and_workers_are_told(
        self, stores: Stores, sessions: Sessions, notified: LocalHints
    ) -> None:
        session = await stores.session()

        await sessions.delete(ALICE, session.id)

        assert (notified.sent[session.id], notified.sent[hints.STOPS]) == (1, 1)
