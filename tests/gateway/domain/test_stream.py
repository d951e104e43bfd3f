"""Streams over breaks of what is behind the gateway."""

import asyncio
from collections.abc import Sequence

import pytest

from services.common.errors import AbortedError, NotFoundError, UnavailableError
from services.gateway.domain.errors import DrainingError, ServiceUnavailableError
from services.gateway.domain.messages import Event, Heartbeat, Message, RunState
from services.gateway.domain.stream import Pace, Stream
from tests.gateway.domain.fixed import NOON, Clock
from tests.gateway.domain.scripted_agents import (
    ADA,
    HANG,
    SESSION,
    ScriptedAgents,
    Step,
    message,
    run,
)

PACE = Pace(
    heartbeat=HANG,
    first_patience=0.05,
    patience=0.05,
    first_pause=0.001,
    longest_pause=0.002,
    lasted=0.02,
)
BROKEN = ServiceUnavailableError("agent")


class Client:
    """Takes events until it has enough, then leaves."""

    def __init__(self, enough: int, *, delay: float = 0) -> None:
        self.events: list[tuple[Event, int]] = []
        self._enough = enough
        self._delay = delay

    async def send(self, event: Event, through: int) -> None:
        """Take one."""
        self.events.append((event, through))
        await asyncio.sleep(self._delay)
        if len(self.events) == self._enough:
            raise ClientGoneError

    @property
    def sequences(self) -> list[int]:
        """Those of the messages."""
        return [event.sequence for event, _ in self.events if isinstance(event, Message)]


class ClientGoneError(Exception):
    """The client has left."""


async def follow(
    agents: ScriptedAgents, enough: int, *, after: int | None = 0, pace: Pace = PACE
) -> Client:
    """Follow until the client has enough events."""
    client = Client(enough)
    with pytest.raises(ClientGoneError):
        await Stream(agents, pace=pace, clock=Clock().now).follow(
            ADA, SESSION, client.send, after=after
        )
    return client


class TestFollow:
    async def test_events_pass_in_order_with_how_far_they_go(self) -> None:
        states = run(RunState.THINKING), run(RunState.FINISHED)
        agents = ScriptedAgents([message(1), states[0], message(2), states[1], HANG])

        client = await follow(agents, 4)

        assert client.events == [
            (message(1), 1),
            (states[0], 1),
            (message(2), 2),
            (states[1], 2),
        ]
        assert agents.open_watches == 0

    @pytest.mark.parametrize(
        "end", [[BROKEN], [DrainingError("d")], [UnavailableError("u")], [AbortedError("s")], []]
    )
    async def test_a_watch_that_ends_is_taken_up_where_it_ended(self, end: Sequence[Step]) -> None:
        agents = ScriptedAgents([message(3), message(4), *end], [message(5), HANG])

        client = await follow(agents, 3, after=2)

        assert client.sequences == [3, 4, 5]
        assert agents.watched_after == [2, 4]

    async def test_what_comes_again_is_not_sent_again(self) -> None:
        agents = ScriptedAgents(
            [message(1), run(RunState.THINKING), message(2), BROKEN],
            [message(1), message(2), run(RunState.THINKING), message(3), HANG],
        )

        client = await follow(agents, 4)

        assert client.sequences == [1, 2, 3]
        assert client.events[1] == (run(RunState.THINKING), 1)

    async def test_a_run_that_changed_meanwhile_is_told(self) -> None:
        agents = ScriptedAgents(
            [run(RunState.THINKING), BROKEN],
            [message(1), run(RunState.FINISHED), run(RunState.IDLE, "other"), HANG],
        )

        client = await follow(agents, 4)

        assert [event for event, _ in client.events[2:]] == [
            run(RunState.FINISHED),
            run(RunState.IDLE, "other"),
        ]

    async def test_a_run_that_ended_meanwhile_is_told_though_it_is_not_the_newest(self) -> None:
        older, newer = run(RunState.THINKING, "older"), run(RunState.IDLE, "newer")
        ended = run(RunState.FINISHED, "older")
        agents = ScriptedAgents(
            [older, newer, run(RunState.FINISHED, "past"), BROKEN],
            [message(1), message(2), run(RunState.THINKING, "newer"), HANG],
        )
        agents.runs = {"older": ended}

        client = await follow(agents, 7)

        assert [event for event, _ in client.events[3:]] == [
            message(1),
            message(2),
            run(RunState.THINKING, "newer"),
            ended,
        ]
        assert agents.looked_up == ["older"]

    async def test_from_now_on_means_from_when_the_stream_was_opened(self) -> None:
        agents = ScriptedAgents([BROKEN], [message(8), HANG], last_sequence=7)

        client = await follow(agents, 1, after=None)

        assert client.sequences == [8]
        assert agents.watched_after == [7, 7]

    async def test_a_refusal_ends_it(self) -> None:
        agents = ScriptedAgents([message(1), NotFoundError("gone")])
        client = Client(9)

        with pytest.raises(NotFoundError, match="gone"):
            await Stream(agents, pace=PACE, clock=Clock().now).follow(
                ADA, SESSION, client.send, after=0
            )

        assert client.sequences == [1]

    @pytest.mark.parametrize("script", [[BROKEN], [DrainingError("d")], []])
    async def test_an_agent_service_that_stays_away_is_named(self, script: Sequence[Step]) -> None:
        agents = ScriptedAgents(script)

        with pytest.raises(ServiceUnavailableError, match="agent"):
            await Stream(agents, pace=PACE, clock=Clock().now).follow(
                ADA, SESSION, Client(1).send, after=0
            )

        assert len(agents.watched_after) > 3

    async def test_patience_begins_anew_with_every_sign_of_life(self) -> None:
        flapping: list[list[Step]] = [[Heartbeat(NOON), BROKEN] for _ in range(60)]
        agents = ScriptedAgents(*flapping, [message(1), HANG])

        assert (await follow(agents, 1)).sequences == [1]

    async def test_a_watch_that_lasted_is_a_sign_of_life(self) -> None:
        quiet: list[list[Step]] = [[0.03, BROKEN] for _ in range(4)]
        agents = ScriptedAgents(*quiet, [message(1), HANG])

        assert (await follow(agents, 1)).sequences == [1]

    async def test_silence_is_filled_with_heartbeats_even_while_the_agent_service_is_away(
        self,
    ) -> None:
        pace = Pace(heartbeat=0.01, patience=60, first_pause=0.05, longest_pause=0.05)
        agents = ScriptedAgents([message(1), BROKEN], [BROKEN], [message(2), HANG])

        client = await follow(agents, 40, pace=pace)

        beats = [(event, through) for event, through in client.events if event == Heartbeat(NOON)]
        assert client.sequences == [1, 2]
        assert (Heartbeat(NOON), 1) in beats
        assert (Heartbeat(NOON), 2) in beats

    async def test_a_slow_client_holds_the_watch_back(self) -> None:
        produced = 0

        class Producing(ScriptedAgents):
            async def watch(self, identity, session_id, *, after):  # type: ignore[no-untyped-def]
                nonlocal produced
                for sequence in range(1, 1000):
                    produced = sequence
                    yield message(sequence)

        client = Client(3, delay=0.01)
        with pytest.raises(ClientGoneError):
            await Stream(Producing([]), pace=PACE, clock=Clock().now).follow(
                ADA, SESSION, client.send, after=0
            )

        assert produced < 20

    async def test_cancelling_leaves_nothing_behind(self) -> None:
        agents = ScriptedAgents([message(1), HANG])
        client = Client(9)
        before = len(asyncio.all_tasks())
        stream = Stream(agents, pace=PACE, clock=Clock().now)
        following = asyncio.ensure_future(stream.follow(ADA, SESSION, client.send, after=0))
        while not client.events:  # noqa: ASYNC110 - it takes a few turns of the loop
            await asyncio.sleep(0)

        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following

        assert agents.open_watches == 0
        assert len(asyncio.all_tasks()) == before

    async def test_many_runs_need_no_more_memory_than_a_few(self) -> None:
        runs = [run(RunState.IDLE, str(number)) for number in range(1000)]
        agents = ScriptedAgents([*runs, HANG])

        client = await follow(agents, 1000)

        assert [event for event, _ in client.events] == runs
