"""`chatmind chat`."""

import json
import uuid

import pytest
from chatmind.agent.v1 import agent_pb2, approval_pb2, run_pb2, session_pb2
from chatmind.gateway.v1 import gateway_service_pb2, message_pb2

from services.common.errors import NotFoundError
from tests.cli.conftest import Chatmind
from tests.cli.gateway import RUN_ID, SESSION_ID, RunState, State, heartbeat, ran, said

Role = message_pb2.Message.Role
Said = session_pb2.Message
Update = message_pb2.RunUpdate
WhenBusy = gateway_service_pb2.WhenBusy

OTHER_RUN = str(uuid.UUID(int=3))
FINISHED = ran(Update.STATE_FINISHED, 3)


@pytest.fixture(autouse=True)
def guide(state: State) -> None:
    """There is one agent."""
    state.agents = [agent_pb2.Agent(id=SESSION_ID, display_name="Guide")]


class TestOneMessage:
    def test_the_answer_alone_is_on_stdout(self, chatmind: Chatmind, state: State) -> None:
        state.streams.append([ran(Update.STATE_THINKING, 1), said("Forty-two.", 2), FINISHED])
        result = chatmind("chat", "What is it?")

        assert (result.exit_code, result.stdout) == (0, "Forty-two.\n")
        assert result.stderr == f"continue with: chatmind chat --session {SESSION_ID}\n"
        assert [(sent.text, sent.agent_id) for sent in state.sent] == [("What is it?", SESSION_ID)]

    def test_tools_and_passages_are_shown_beside_it(self, chatmind: Chatmind, state: State) -> None:
        call = message_pb2.ToolCall(name="query_knowledge", arguments_json='{"q":\n "x"}')
        citation = message_pb2.Citation(
            label="1", document_name="a.md", heading_path=["A", "B"], start_line=3, end_line=9
        )
        state.streams.append(
            [
                said("", 2, tool_calls=[call]),
                said("", 3, role=Role.ROLE_TOOL, tool_name="query_knowledge", citations=[citation]),
                said("It is so [1].", 4, citations=[citation]),
                ran(Update.STATE_FINISHED, 4),
            ]
        )
        result = chatmind("chat", "Why?")

        assert result.stdout == "It is so [1].\n"
        assert result.stderr.splitlines()[:3] == [
            '→ query_knowledge {"q": "x"}',
            "← query_knowledge: 1 passages",
            "[1] a.md > A > B (lines 3-9)",
        ]

    @pytest.mark.parametrize(
        ("name", "arguments", "shown"),
        [
            ("ask_fact_finder", '{"task": "Look\\nit up."}', "→ asks fact finder: Look it up."),
            ("ask_fact_finder", "{", "→ ask_fact_finder {"),
            ("ask_fact_finder", '{"task": 1}', '→ ask_fact_finder {"task": 1}'),
            ("look", '{"task": "x"}', '→ look {"task": "x"}'),
        ],
    )
    def test_other_agents_that_are_asked_are_shown(
        self, chatmind: Chatmind, state: State, name: str, arguments: str, shown: str
    ) -> None:
        call = message_pb2.ToolCall(name=name, arguments_json=arguments)
        state.streams.append([said("", 2, tool_calls=[call]), said("Yes.", 3), FINISHED])

        assert chatmind("chat", "Why?").stderr.splitlines()[0] == shown

    def test_without_a_terminal_it_tells_how_to_approve_and_follows(
        self, chatmind: Chatmind, state: State
    ) -> None:
        state.approvals = [
            approval_pb2.Approval(
                id=OTHER_RUN,
                tool_name="send",
                arguments_json='{"to":"bob"}',
                state=approval_pb2.Approval.STATE_PENDING,
            )
        ]
        state.streams.append(
            [ran(Update.STATE_AWAITING_APPROVAL, 2), said("Sent.", 3), FINISHED],
        )
        result = chatmind("chat", "Send it")

        assert (result.exit_code, result.stdout, state.resolved) == (0, "Sent.\n", [])
        assert "send is to be called with:" in result.stderr
        assert '"to": "bob"' in result.stderr
        assert f"chatmind run approve {RUN_ID}" in result.stderr

    def test_a_session_is_continued_without_an_agent(
        self, chatmind: Chatmind, state: State
    ) -> None:
        state.streams.append([FINISHED])
        chatmind("chat", "And then?", "--session", SESSION_ID)

        assert (state.sent[0].session_id, state.sent[0].agent_id) == (SESSION_ID, "")

    def test_only_its_own_answer_is_printed(self, chatmind: Chatmind, state: State) -> None:
        """Not that of an earlier message, behind which it waits."""
        other = said("To somebody else.", 2)
        other.message.run_id = OTHER_RUN
        state.streams.append([other, said("To you.", 3), FINISHED])

        assert chatmind("chat", "Hi", "--session", SESSION_ID).stdout == "To you.\n"

    @pytest.mark.parametrize("way", ["enqueue", "reject", "interrupt", "rollback"])
    def test_what_to_do_with_a_run_that_goes_on_is_passed_on(
        self, chatmind: Chatmind, state: State, way: str
    ) -> None:
        state.streams.append([FINISHED])
        chatmind("chat", "Stop!", "--session", SESSION_ID, "--when-busy", way)

        assert WhenBusy.Name(state.sent[0].when_busy) == f"WHEN_BUSY_{way.upper()}"

    @pytest.mark.parametrize("empty", ["", " \n"])
    def test_an_empty_one_is_not_sent(self, chatmind: Chatmind, state: State, empty: str) -> None:
        result = chatmind("chat", empty)

        assert (result.exit_code, state.sent) == (1, [])
        assert result.stderr == "error: the message is empty; it needs at least one character\n"

    def test_an_agent_and_a_session_are_not_both_taken(
        self, chatmind: Chatmind, state: State
    ) -> None:
        result = chatmind("chat", "Hi", "--session", SESSION_ID, "--agent", "Guide")

        assert (result.exit_code, state.sent) == (1, [])
        assert result.stderr == (
            "error: --agent and --session exclude each other: a session keeps its agent\n"
        )

    @pytest.mark.parametrize("end", [Update.STATE_ERROR, Update.STATE_CANCELLED])
    def test_a_run_without_an_answer_fails_the_command(
        self, chatmind: Chatmind, state: State, end: Update.State.ValueType
    ) -> None:
        notice = said("The model is down.", 2, role=Role.ROLE_SYSTEM)
        state.streams.append([notice, ran(end, 2)])
        result = chatmind("chat", "Hello?")

        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith("error: The model is down.\n")

    def test_one_that_was_over_before_the_stream_began_does_not_hang(
        self, chatmind: Chatmind, state: State
    ) -> None:
        state.run = run_pb2.Run(id=RUN_ID, state=RunState.STATE_FINISHED)
        state.last_sequence = 2
        state.streams.append([said("Quick.", 2), heartbeat(2)])
        result = chatmind("chat", "Hello?")

        assert (result.exit_code, result.stdout) == (0, "Quick.\n")

    def test_who_is_not_there_cannot_be_talked_to(self, chatmind: Chatmind, state: State) -> None:
        result = chatmind("chat", "Hello?", "--agent", "Nobody")

        assert (result.exit_code, state.sent) == (1, [])
        assert "no agent is called 'Nobody'" in result.stderr

    def test_a_stream_that_fails_still_tells_how_to_go_on(
        self, chatmind: Chatmind, state: State
    ) -> None:
        state.streams.append([NotFoundError("No such session.")])
        result = chatmind("chat", "Hello?")

        assert result.exit_code == 1
        assert result.stderr.splitlines() == [
            f"continue with: chatmind chat --session {SESSION_ID}",
            "error: No such session. (NOT_FOUND)",
        ]

    def test_nothing_in_an_answer_reaches_the_terminal_as_a_command(
        self, chatmind: Chatmind, state: State
    ) -> None:
        text = "\x1b]0;owned\x07[red]not markup[/red] \x9b2J :smile: 好\u202e\r\nnext"
        state.streams.append([said(text, 2), FINISHED])

        assert (
            chatmind("chat", "Hi").stdout == "]0;owned[red]not markup[/red] 2J :smile: 好\nnext\n"
        )


class TestJson:
    def test_events_are_objects_and_heartbeats_are_left_out(
        self, chatmind: Chatmind, state: State
    ) -> None:
        state.streams.append([heartbeat(1), said("a\nb", 2), FINISHED])
        result = chatmind("chat", "Hi", "--json")
        events = [json.loads(line) for line in result.stdout.splitlines()]

        assert [sorted(event) for event in events] == [
            ["message", "through_sequence"],
            ["run", "through_sequence"],
        ]
        assert events[0]["message"]["text"] == "a\nb"
        assert result.stderr == ""


class TestConversation:
    def test_each_line_is_said_in_the_same_session(self, chatmind: Chatmind, state: State) -> None:
        state.streams.extend([[said("One.", 2), FINISHED], [said("Two.", 4), FINISHED]])
        result = chatmind("chat", stdin="first\n\n  \nsecond\n")

        assert (result.exit_code, result.stdout) == (0, "One.\nTwo.\n")
        assert [(sent.text, sent.session_id) for sent in state.sent] == [
            ("first", ""),
            ("second", SESSION_ID),
        ]

    def test_nothing_said_is_nothing_sent(self, chatmind: Chatmind, state: State) -> None:
        result = chatmind("chat", stdin="")

        assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
        assert state.sent == []


class TestContinuedConversation:
    """What the client missed is shown before anything else is asked."""

    @pytest.fixture(autouse=True)
    def _two_turns(self, state: State) -> None:
        state.run = run_pb2.Run(id=RUN_ID, session_id=SESSION_ID, state=RunState.STATE_FINISHED)
        state.last_sequence = 4
        state.messages = [
            Said(sequence=number + 1, role=role, run_id=run_id)
            for number, (role, run_id) in enumerate(
                [
                    (Said.ROLE_USER, OTHER_RUN),
                    (Said.ROLE_ASSISTANT, OTHER_RUN),
                    (Said.ROLE_USER, RUN_ID),
                    (Said.ROLE_ASSISTANT, RUN_ID),
                ]
            )
        ]

    def test_the_last_turn_is_shown(self, chatmind: Chatmind, state: State) -> None:
        question = said("Why?", 3, role=Role.ROLE_USER)
        state.streams.append([question, said("Because.", 4), heartbeat(4)])
        result = chatmind("chat", "--session", SESSION_ID)

        assert (result.exit_code, result.stdout, result.stderr) == (0, "Because.\n", "you> Why?\n")
        assert state.resumed_after == [2]

    def test_more_turns_are_shown_on_demand(self, chatmind: Chatmind, state: State) -> None:
        state.streams.append([said("First.", 2), said("Because.", 4), heartbeat(4)])
        result = chatmind("chat", "--session", SESSION_ID, "--history", "2")

        assert result.stdout == "First.\nBecause.\n"
        assert state.resumed_after == [0]

    def test_none_is_shown_on_demand(self, chatmind: Chatmind, state: State) -> None:
        result = chatmind("chat", "--session", SESSION_ID, "--history", "0")

        assert (result.exit_code, result.stdout, state.resumed_after) == (0, "", [])

    def test_what_was_rolled_back_is_not(self, chatmind: Chatmind, state: State) -> None:
        state.streams.append([said("Because.", 3), said("No.", 4, discarded=True), heartbeat(4)])

        assert chatmind("chat", "--session", SESSION_ID).stdout == "Because.\n"

    def test_runs_that_go_on_are_waited_for_one_after_the_other(
        self, chatmind: Chatmind, state: State
    ) -> None:
        state.run.state = RunState.STATE_THINKING
        state.active_runs.extend([RUN_ID, OTHER_RUN])
        late = said("And this.", 6)
        state.streams.extend(
            [
                [said("Because.", 4), said("Late.", 5), ran(Update.STATE_FINISHED, 5)],
                [late, ran(Update.STATE_FINISHED, 6, run_id=OTHER_RUN)],
                [said("Fine.", 8), ran(Update.STATE_FINISHED, 8)],
            ]
        )
        result = chatmind("chat", "--session", SESSION_ID, stdin="Go on.\n")

        assert result.stdout == "Because.\nLate.\nAnd this.\nFine.\n"
        assert state.resumed_after == [2, 5, 1]
        assert [sent.text for sent in state.sent] == ["Go on."]

    def test_one_that_fails_fails_the_command(self, chatmind: Chatmind, state: State) -> None:
        state.run.state = RunState.STATE_THINKING
        state.active_runs.append(RUN_ID)
        state.streams.append([ran(Update.STATE_ERROR, 4)])

        assert chatmind("chat", "--session", SESSION_ID).exit_code == 1

    def test_for_scripts_all_of_it_is_events(self, chatmind: Chatmind, state: State) -> None:
        state.streams.append([said("Because.", 4), heartbeat(4)])
        result = chatmind("chat", "--session", SESSION_ID, "--json")
        message, run = (json.loads(line) for line in result.stdout.splitlines())

        assert (message["message"]["text"], run["run"]["state"]) == ("Because.", "STATE_FINISHED")

    @pytest.mark.parametrize("message", [(), ("Hi",)])
    @pytest.mark.parametrize(
        ("session", "why"),
        [
            (
                "xyz",
                "'xyz' is not the id of a session; `chatmind session list` shows yours",
            ),
            (OTHER_RUN, "No such session. (NOT_FOUND)"),
        ],
    )
    def test_one_that_is_not_there_is_an_error_and_not_to_be_continued(
        self, chatmind: Chatmind, state: State, message: tuple[str, ...], session: str, why: str
    ) -> None:
        result = chatmind("chat", *message, "--session", session)

        assert (result.exit_code, result.stderr) == (1, f"error: {why}\n")
        assert state.sent == []
