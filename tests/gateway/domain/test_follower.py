"""What waits to be sent to one client."""

import asyncio

import pytest

from services.common.errors import NotFoundError
from services.gateway.domain.follower import Follower, Sendable
from services.gateway.domain.messages import GoAway, Heartbeat, Message, RunState, Told
from services.gateway.domain.models import RunId
from services.gateway.domain.ports import Place
from tests.gateway.domain.fixed import NOON
from tests.gateway.domain.scripted_agents import ADA, SESSION, message, run


def following(after: int = 0) -> Follower:
    """A client that has seen the messages up to a sequence."""
    return Follower(ADA, SESSION, after)


async def waiting(follower: Follower) -> list[Sendable]:
    """All that waits to be sent."""
    sent: list[Sendable] = []
    try:
        async with asyncio.timeout(0.01):
            while True:
                sent.append(await follower.next())
    except TimeoutError:
        return sent


class TestOrder:
    async def test_events_come_as_they_were_told_with_how_far_they_go(self) -> None:
        follower = following()
        for event in (message(1), run(RunState.THINKING), message(2)):
            assert follower.tell(event)
        follower.add(Heartbeat(NOON))

        assert await waiting(follower) == [
            (message(1), 1),
            (run(RunState.THINKING), 1),
            (message(2), 2),
            (Heartbeat(NOON), 2),
        ]

    async def test_whoever_waits_is_woken(self) -> None:
        follower = following(7)
        asked = asyncio.ensure_future(follower.next())
        await asyncio.sleep(0)
        assert follower.waiting_since is not None

        follower.add(GoAway())

        assert await asyncio.wait_for(asked, 5) == (GoAway(), 7)
        assert follower.waiting_since is None

    async def test_what_is_known_is_not_sent_again(self) -> None:
        follower = following(2)
        told: list[Told] = [
            *(message(1), message(2), message(3), message(3)),
            *(run(RunState.IDLE), run(RunState.IDLE), run(RunState.THINKING)),
        ]
        assert all(follower.tell(event) for event in told)

        assert [event for event, _ in await waiting(follower)] == [
            message(3),
            run(RunState.IDLE),
            run(RunState.THINKING),
        ]

    async def test_a_failure_comes_after_what_was_before_it(self) -> None:
        follower = following()
        follower.tell(message(1))
        follower.fail(NotFoundError("gone"))

        assert await follower.next() == (message(1), 1)
        with pytest.raises(NotFoundError, match="gone"):
            await follower.next()

    async def test_a_failure_wakes_who_waits(self) -> None:
        follower = following()
        asked = asyncio.ensure_future(follower.next())
        await asyncio.sleep(0)
        follower.fail(NotFoundError("gone"))

        with pytest.raises(NotFoundError):
            await asyncio.wait_for(asked, 5)


class TestBounds:
    """S3: what waits for a client is bounded, however slowly it reads."""

    async def test_no_more_than_a_hundred_events_wait(self) -> None:
        follower = following()
        taken = [follower.tell(message(number)) for number in range(1, 103)]

        assert taken == [True] * 100 + [False] * 2
        assert follower.lagging
        assert len(await waiting(follower)) == 100
        assert follower.has_room_again

    async def test_no_more_than_a_mebibyte_waits(self) -> None:
        follower = following()
        taken = [follower.tell(message(number, 400_000)) for number in range(1, 4)]

        assert taken == [True, True, False]

    async def test_one_message_is_taken_however_large(self) -> None:
        follower = following()
        assert follower.tell(message(1, 3_000_000))
        assert not follower.tell(message(2))

        assert await waiting(follower) == [(message(1, 3_000_000), 1)]
        assert follower.tell(message(2))

    async def test_room_comes_back_with_what_is_sent(self) -> None:
        follower = following()
        for number in range(1, 101):
            follower.tell(message(number, 10_000))
        for _ in range(10):
            await follower.next()

        assert all(follower.tell(message(number, 10_000)) for number in range(101, 111))

    async def test_what_was_refused_is_told_again_after_the_last_one_taken(self) -> None:
        follower = following()
        for number in range(1, 150):
            if not follower.tell(message(number)):
                break
        sent = await waiting(follower)
        place = follower.resume()
        assert (place.after, follower.lagging) == (100, False)

        for number in range(place.after + 1, 150):
            follower.tell(message(number))
        sent += await waiting(follower)

        told = [event.sequence for event, _ in sent if isinstance(event, Message)]
        assert told == list(range(1, 150))

    async def test_states_of_runs_count_as_well(self) -> None:
        follower = following()
        taken = [follower.tell(run(RunState.IDLE, str(number))) for number in range(101)]

        assert taken == [True] * 100 + [False]


class TestResume:
    def test_at_first_it_begins_where_the_client_is(self) -> None:
        assert following(7).resume() == Place(7, [])

    def test_runs_whose_end_is_not_known_are_asked_for(self) -> None:
        follower = following()
        follower.tell(message(1))
        follower.tell(run(RunState.THINKING, "older"))
        follower.tell(run(RunState.IDLE, "newer"))
        follower.tell(run(RunState.FINISHED, "past"))
        follower.tell(run(RunState.EXECUTING, "older"))

        assert follower.resume() == Place(1, [RunId("newer"), RunId("older")])

    def test_only_the_latest_runs_are_kept_in_mind(self) -> None:
        follower = following()
        for number in range(90):
            follower.tell(run(RunState.IDLE, str(number)))

        assert follower.resume().open_runs == [str(number) for number in range(26, 90)]
