"""Where the last turns of a session begin."""

import pytest
from chatmind.agent.v1 import session_pb2

from cli.client import Gateway
from cli.history import LastTurns, last_turns
from tests.cli.gateway import SESSION_ID, State

Message = session_pb2.Message
SESSION = session_pb2.Session(id=SESSION_ID, last_sequence=7)


@pytest.fixture
def three_turns(state: State) -> None:
    """The second of three was rolled back."""
    roles = "user assistant user assistant user tool assistant"
    state.messages = [
        Message(
            sequence=number,
            role=Message.Role.Value(f"ROLE_{role.upper()}"),
            run_id=f"run-{number}",
            discarded=number in (3, 4),
        )
        for number, role in enumerate(roles.split(), start=1)
    ]


@pytest.mark.usefixtures("three_turns")
class TestLastTurns:
    @pytest.mark.parametrize(("turns", "after"), [(1, 4), (2, 0), (9, 0)])
    def test_each_begins_with_what_the_user_says(
        self, gateway: Gateway, turns: int, after: int
    ) -> None:
        assert last_turns(gateway, SESSION, turns) == LastTurns(after, "run-7")

    def test_none_are_behind_all_messages(self, gateway: Gateway) -> None:
        assert last_turns(gateway, SESSION, 0) == LastTurns(7, "")


def test_a_session_without_messages_has_none(gateway: Gateway) -> None:
    assert last_turns(gateway, SESSION, 1) == LastTurns(0, "")
