from dataclasses import replace

import pytest

from services.agent.domain.messages import Draft, Message, Role
from services.agent.domain.models import AgentId, MessageId, RunId, SessionId, ToolCallId
from services.agent.domain.replay.compare import MOST_CHARS, compare
from services.agent.domain.replay.recording import Outcome, Recording
from services.agent.domain.run_models import Offered, Run, RunError, RunState, StopReason
from tests.agent.turns import START, call

RUN = Run(
    id=RunId("r"),
    session_id=SessionId("s"),
    tenant="acme",
    user_id="ann",
    agent_id=AgentId("a"),
    message_id=MessageId("m1"),
    turn=1,
    state=RunState.FINISHED,
    create_time=START,
    stop_reason=StopReason.END_TURN,
    offered=Offered(("look",), (), "m"),
)
ASKED = Draft(Role.ASSISTANT, "", tool_calls=(call("c1"),), metadata={"model": "m"})
FOUND = Draft(Role.TOOL, "found", tool_call_id=ToolCallId("c1"), tool_name="look")
ANSWER = Draft(Role.ASSISTANT, "There.")


def said(*drafts: Draft, first: int = 1) -> list[Message]:
    """Messages with these drafts after a question."""
    return [
        Message(
            role=draft.role,
            text=draft.text,
            tool_calls=draft.tool_calls,
            tool_call_id=draft.tool_call_id,
            tool_name=draft.tool_name,
            metadata=draft.metadata,
            id=MessageId(f"m{number}"),
            session_id=RUN.session_id,
            run_id=RUN.id,
            sequence=number,
            step=0,
            create_time=START,
        )
        for number, draft in enumerate([Draft(Role.USER, "Where?"), *drafts], start=first)
    ]


def recording(*drafts: Draft, run: Run = RUN) -> Recording:
    return Recording(run, None, (), said(*drafts, first=11))


@pytest.mark.parametrize(
    ("replayed", "path", "sequence", "told"),
    [
        ([ASKED, replace(FOUND, text="other"), ANSWER], "messages[2].text", 13, "other"),
        ([ASKED, replace(FOUND, tool_name="dig"), ANSWER], "messages[2].tool_name", 13, "dig"),
        ([replace(ASKED, tool_calls=()), FOUND, ANSWER], "messages[1].tool_calls[0]", 12, ""),
        (
            [ASKED, replace(FOUND, metadata={"error": "timeout"}), ANSWER],
            "messages[2].metadata.error",
            13,
            "timeout",
        ),
        ([ASKED, FOUND], "messages[3]", 14, ""),
        (
            [ASKED, FOUND, ANSWER, Draft(Role.SYSTEM, "!")],
            "messages[4]",
            0,
            '{"role": "SYSTEM", "text": "!"}',
        ),
    ],
)
def test_the_first_message_that_differs_is_told(
    replayed: list[Draft], path: str, sequence: int, told: str
) -> None:
    replay = compare(recording(ASKED, FOUND, ANSWER), Outcome(RUN, said(*replayed)), ended=True)

    assert replay.difference is not None
    assert (path, sequence, told) == (
        replay.difference.path,
        replay.difference.sequence,
        replay.difference.replayed,
    )


@pytest.mark.parametrize(
    ("run", "path", "recorded", "replayed"),
    [
        (replace(RUN, offered=Offered((), (), "m")), "offered.tools", '["look"]', "[]"),
        (replace(RUN, offered=None), "offered.tools", '["look"]', ""),
        (replace(RUN, state=RunState.ERROR), "state", "FINISHED", "ERROR"),
        (replace(RUN, stop_reason=StopReason.MAX_STEPS), "stop_reason", "END_TURN", "MAX_STEPS"),
        (replace(RUN, error=RunError("X", "x")), "error.reason", "", "X"),
    ],
)
def test_what_was_offered_and_the_end_are_compared_too(
    run: Run, path: str, recorded: str, replayed: str
) -> None:
    replay = compare(recording(ANSWER), Outcome(run, said(ANSWER)), ended=True)

    assert replay.difference is not None
    assert (path, recorded, replayed) == (
        replay.difference.path,
        replay.difference.recorded,
        replay.difference.replayed,
    )


def test_ids_times_and_usage_do_not_count() -> None:
    told = replace(ANSWER, metadata={"usage": {"input_tokens": 3}, "model": "other"})

    replay = compare(recording(ANSWER), Outcome(RUN, said(told)), ended=True)

    assert (
        replay.difference,
        replay.compared_messages,
        replay.end,
    ) == (None, 1, StopReason.END_TURN)


def test_without_an_end_of_its_own_a_replay_is_compared_as_far_as_the_record_goes() -> None:
    run = replace(RUN, state=RunState.CANCELLED, stop_reason=StopReason.CANCELLED)
    cut = replace(FOUND, text="cancelled by the user", metadata={"error": "cancelled"})
    recorded = recording(ASKED, cut, Draft(Role.SYSTEM, "Stopped."), run=run)
    going_on = replace(RUN, state=RunState.THINKING, stop_reason=None)

    replay = compare(recorded, Outcome(going_on, said(ASKED, FOUND)), ended=False)

    assert (replay.difference, replay.compared_messages, replay.end) == (None, 1, None)


def test_long_values_are_cut() -> None:
    long = replace(ANSWER, text="x" * 10_000)

    replay = compare(recording(ANSWER), Outcome(RUN, said(long)), ended=True)

    assert replay.difference is not None
    assert replay.difference.replayed == "x" * MOST_CHARS + " …"
