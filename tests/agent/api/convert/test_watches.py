from datetime import UTC

import pytest
from chatmind.agent.v1 import run_service_pb2
from google.rpc import status_pb2

from services.agent.api.convert.runs import from_run
from services.agent.api.convert.sessions import from_message
from services.agent.api.convert.watches import from_event, from_told
from services.agent.domain.messages import Message, Role
from services.agent.domain.models import MessageId, RunId, SessionId
from services.agent.domain.run_models import RunState
from services.agent.domain.watch.position import CaughtUp, News
from services.agent.domain.watch.watch import Event, GoAway, Heartbeat
from services.agent.domain.watch.watching import Told
from services.common.errors import NotFoundError, ServiceError
from services.common.status import failure_of_status
from tests.agent.api.convert.test_runs import MOMENT, a_run


def a_message(sequence: int = 7, *, text: str = "Hello") -> Message:
    """A message."""
    return Message(
        role=Role.ASSISTANT,
        text=text,
        id=MessageId("m"),
        session_id=SessionId("s"),
        run_id=RunId("r"),
        sequence=sequence,
        step=1,
        create_time=MOMENT,
    )


def only(told: Told) -> run_service_pb2.WatchedEvent:
    """The one event of the one response."""
    [response] = from_told([told], domain="agent.chatmind")
    [event] = response.events
    return event


class TestEvent:
    def test_a_heartbeat_tells_its_time(self) -> None:
        told = from_event(Event(Heartbeat(MOMENT), 7))

        assert (told.through_sequence, told.WhichOneof("event")) == (7, "heartbeat")
        assert told.heartbeat.time.ToDatetime(tzinfo=UTC) == MOMENT

    def test_a_run_is_told_as_it_is_everywhere(self) -> None:
        value = a_run(RunState.THINKING)

        assert from_run(value) == from_event(Event(value, 7)).run

    def test_a_message_is_told_as_it_is_everywhere(self) -> None:
        assert from_message(a_message()) == from_event(Event(a_message(), 7)).message

    def test_going_away_tells_where_to_go_on(self) -> None:
        told = from_event(Event(GoAway(), 7))

        assert (told.go_away.resume_after_sequence, told.through_sequence) == (7, 7)


class TestTold:
    @pytest.mark.parametrize(
        ("news", "kind"),
        [(a_message(), "message"), (a_run(RunState.IDLE), "run"), (CaughtUp(), "heartbeat")],
    )
    def test_news_is_for_all_its_watches(self, news: News, kind: str) -> None:
        event = only(Told((3, 5), news, 7))

        assert (event.WhichOneof("event"), event.through_sequence) == (kind, 7)
        assert list(event.watch_ids) == [3, 5]

    def test_an_error_is_told_as_other_calls_have_it(self) -> None:
        error: ServiceError = NotFoundError("No.", metadata={"id": "7"})

        event = only(Told((3,), error, 0))

        failure = failure_of_status(status_pb2.Status.FromString(event.status))
        assert (failure.code.name, failure.reason, failure.message) == (
            "NOT_FOUND",
            "NOT_FOUND",
            "No.",
        )
        assert failure.metadata == {"id": "7"}

    def test_much_is_told_in_several_responses_in_order(self) -> None:
        told = [Told((1,), a_message(n, text="x" * 300_000), n) for n in range(1, 11)]

        responses = list(from_told(told, domain="agent.chatmind"))

        assert [len(each.events) for each in responses] == [4, 4, 2]
        assert [event.through_sequence for each in responses for event in each.events] == list(
            range(1, 11)
        )

    def test_of_nothing_there_is_no_response(self) -> None:
        assert list(from_told([], domain="agent.chatmind")) == []
