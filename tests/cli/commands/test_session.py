"""`chatmind session`."""

import json

from chatmind.agent.v1 import session_pb2

from tests.cli.conftest import Chatmind
from tests.cli.gateway import RUN_ID, SESSION_ID, State

Message = session_pb2.Message
Session = session_pb2.Session


class TestList:
    def test_every_page_is_shown_with_the_run_that_goes_on(
        self, chatmind: Chatmind, state: State
    ) -> None:
        state.sessions = [
            Session(id="s3", title="Third", last_sequence=4, active_run_id=RUN_ID),
            Session(id="s2", title="Second"),
            Session(id="s1", title="First"),
        ]
        lines = chatmind("session", "list").stdout.splitlines()

        assert [line.split() for line in lines[1:]] == [
            ["Third", "4", RUN_ID, "s3"],
            ["Second", "0", "s2"],
            ["First", "0", "s1"],
        ]
        scripted = chatmind("session", "list", "--json").stdout.splitlines()
        assert [json.loads(line)["id"] for line in scripted] == ["s3", "s2", "s1"]

    def test_those_of_sub_agents_are_shown_if_they_are_asked_for(
        self, chatmind: Chatmind, state: State
    ) -> None:
        state.sessions = [Session(id="s2", parent_run_id="r1"), Session(id="s1")]

        def ids(*options: str) -> list[str]:
            lines = chatmind("session", "list", "--json", *options).stdout.splitlines()
            return [json.loads(line)["id"] for line in lines]

        assert ids() == ["s1"]
        assert ids("--all") == ["s2", "s1"]
        assert ids("--run", "r1") == ["s2"]


class TestShow:
    def test_all_messages_are_shown_oldest_first(self, chatmind: Chatmind, state: State) -> None:
        call = session_pb2.ToolCall(name="query_knowledge", arguments_json='{"query": "x"}')
        state.messages = [
            Message(sequence=1, role=Message.ROLE_USER, text="Why?\nTell me."),
            Message(sequence=2, role=Message.ROLE_ASSISTANT, tool_calls=[call]),
            Message(sequence=3, role=Message.ROLE_SYSTEM, text="It failed.", discarded=True),
        ]
        for message in state.messages:
            message.create_time.FromJsonString("2026-01-02T03:04:05Z")
        shown = chatmind("session", "show", SESSION_ID).stdout

        assert shown.split("\n\n") == [
            "1  user  2026-01-02T03:04:05Z\n    Why?\n    Tell me.",
            '2  assistant  2026-01-02T03:04:05Z\n    → query_knowledge {"query": "x"}',
            "3  system, discarded  2026-01-02T03:04:05Z\n    It failed.",
            "",
        ]
        scripted = chatmind("session", "show", SESSION_ID, "--json").stdout.splitlines()
        assert [json.loads(line)["sequence"] for line in scripted] == ["1", "2", "3"]

    def test_one_that_is_not_there_is_told(self, chatmind: Chatmind) -> None:
        assert chatmind("session", "show", RUN_ID).stderr == "error: No such session. (NOT_FOUND)\n"


class TestMemory:
    def test_the_summary_and_the_messages_are_shown(self, chatmind: Chatmind, state: State) -> None:
        summary = state.memory.summary
        summary.text, summary.first_question = "Notes.\nMore.", "Why?"
        summary.messages, summary.through_sequence = 40, 39
        state.memory.messages.append(Message(sequence=41, role=Message.ROLE_USER, text="And?"))
        state.memory.messages[0].create_time.FromJsonString("2026-01-02T03:04:05Z")
        state.memory.tokens = 90
        shown = chatmind("session", "memory", SESSION_ID).stdout

        assert shown.split("\n\n") == [
            "summary of 40 messages, through 39\n    first question: Why?\n    Notes.\n    More.",
            "41  user  2026-01-02T03:04:05Z\n    And?",
            "about 90 tokens\n",
        ]
        scripted = json.loads(chatmind("session", "memory", SESSION_ID, "--json").stdout)
        assert scripted["summary"]["first_question"] == "Why?"

    def test_without_a_summary_there_are_messages_alone(self, chatmind: Chatmind) -> None:
        assert chatmind("session", "memory", SESSION_ID).stdout == "about 0 tokens\n"

    def test_one_that_is_not_there_is_told(self, chatmind: Chatmind) -> None:
        for command in ("memory", "clear", "compact"):
            told = chatmind("session", command, RUN_ID).stderr
            assert told == "error: No such session. (NOT_FOUND)\n"


class TestClear:
    def test_it_tells_how_far(self, chatmind: Chatmind) -> None:
        told = chatmind("session", "clear", SESSION_ID).stdout

        assert told == "forgotten through message 7 and its answer\n"


class TestCompact:
    def test_what_was_summarised_is_told(self, chatmind: Chatmind, state: State) -> None:
        done = state.compacted
        done.messages, done.tokens_before, done.tokens_after = 40, 900, 20
        done.summary.text = "Notes."
        told = chatmind("session", "compact", SESSION_ID).stdout

        assert told == ("40 messages of about 900 tokens are a summary of 20 now:\n\nNotes.\n")

    def test_that_there_was_nothing_to_do_is_told(self, chatmind: Chatmind) -> None:
        told = chatmind("session", "compact", SESSION_ID).stdout

        assert told == "nothing is old enough to be summarised\n"


class TestUpdate:
    def test_what_is_named_changes_and_nothing_else(self, chatmind: Chatmind, state: State) -> None:
        result = chatmind("session", "update", SESSION_ID, "--time-zone", "Asia/Tokyo")
        [session] = state.sessions

        assert result.stdout == f"{SESSION_ID}\n"
        assert (session.title, session.time_zone) == ("Old", "Asia/Tokyo")

    def test_nothing_to_change_is_told(self, chatmind: Chatmind) -> None:
        told = chatmind("session", "update", SESSION_ID)

        assert told.exit_code == 1
        assert "nothing is to be changed" in told.stderr
