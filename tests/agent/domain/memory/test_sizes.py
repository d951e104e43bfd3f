from services.agent.domain.memory.sizes import kept_room, summary_tokens
from services.agent.domain.models import Window
from services.agent.domain.turn.context import Room


def test_a_third_of_the_room_is_kept_and_a_quarter_summary_at_most() -> None:
    assert kept_room(Window(), 9000) == Room(20, 3000)
    assert kept_room(Window(keep_messages=0), 9000) == Room(0, 3000)
    assert summary_tokens(Window(), 8000) == 1000
    assert summary_tokens(Window(), 2000) == 500
    assert summary_tokens(Window(max_summary_tokens=300), 8000) == 300
    assert summary_tokens(Window(), -5) == 1
