"""What was said in a session before."""

from dataclasses import dataclass

from chatmind.agent.v1 import agent_service_pb2, session_pb2

from cli.client import Gateway, listed


@dataclass(frozen=True, slots=True)
class LastTurns:
    """Where the last turns of a session are.

    Attributes:
        after: the sequence before them.
        run_id: the newest message's run; empty if there is none to show.
    """

    after: int
    run_id: str


def last_turns(gateway: Gateway, session: session_pb2.Session, turns: int) -> LastTurns:
    """Find the last turns of a session, each of which begins with what the user says.

    What was discarded belongs to no turn.
    """
    if turns == 0:
        return LastTurns(session.last_sequence, "")
    request = agent_service_pb2.ListMessagesRequest(
        session_id=session.id, order=agent_service_pb2.ListMessagesRequest.ORDER_NEWEST_FIRST
    )
    run_id, left = "", turns
    for message in listed(gateway.agents.ListMessages, request, lambda page: page.messages):
        run_id = run_id or message.run_id
        if message.role == session_pb2.Message.ROLE_USER and not message.discarded:
            left -= 1
        if left == 0:
            return LastTurns(message.sequence - 1, run_id)
    return LastTurns(0, run_id)
