"""What the commands print."""

import io
import json
import sys

import grpc
import pytest
from chatmind.agent.v1 import agent_pb2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cli.output import Output, as_dict, counted, word
from services.common.errors import FieldViolation
from services.common.status import RpcFailure

Captured = pytest.CaptureFixture[str]

FAILURE = RpcFailure(
    grpc.StatusCode.INVALID_ARGUMENT,
    "INVALID_FIELD",
    "query: must not be empty",
    violations=(FieldViolation("query", "must not be empty"),),
)


def agent(name: str) -> agent_pb2.Agent:
    return agent_pb2.Agent(id="a1", display_name=name)


class TestForPeople:
    def test_results_go_to_stdout_and_the_rest_to_stderr(self, capsys: Captured) -> None:
        output = Output(as_json=False)
        output.message(agent("x"), text="result")
        output.note("note")
        output.error("wrong")

        assert capsys.readouterr() == ("result\n", "note\nerror: wrong\n")

    @pytest.mark.parametrize("text", ["[red]x[/red]", "[/]", "[link=x]", ":smile:", "a [1] b"])
    def test_nothing_is_taken_for_markup(self, capsys: Captured, text: str) -> None:
        output = Output(as_json=False)
        output.text(text)
        output.markdown(text)
        output.note(text)
        output.error(text)
        output.table([agent(text)], columns=("NAME",), rows=[(text,)])
        out, err = capsys.readouterr()

        assert [line.rstrip() for line in out.splitlines()] == [text, text, "NAME", text]
        assert err == f"{text}\nerror: {text}\n"

    def test_a_row_is_one_line_and_no_cell_is_cut(self, capsys: Captured) -> None:
        name = "a\nb " + "long " * 60
        Output(as_json=False).table([], columns=("A", "B"), rows=[(name, "0190a5b8-0000")])
        header, row, *rest = capsys.readouterr().out.splitlines()

        assert (header.split(), rest) == (["A", "B"], [])
        assert row.split() == [*name.split(), "0190a5b8-0000"]

    def test_a_failure_says_what_and_why(self, capsys: Captured) -> None:
        Output(as_json=False).failure(FAILURE)

        assert capsys.readouterr().err == "error: query: must not be empty (INVALID_FIELD)\n"

    def test_a_failure_without_a_reason_says_its_code(self, capsys: Captured) -> None:
        Output(as_json=False).failure(RpcFailure(grpc.StatusCode.UNKNOWN, "", "Hm."))

        assert capsys.readouterr().err == "error: Hm. (UNKNOWN)\n"

    def test_a_terminal_gets_markdown_laid_out_with_its_addresses(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        terminal = Terminal()
        monkeypatch.setattr(sys, "stdout", terminal)
        monkeypatch.setenv("TERM", "xterm")
        Output(as_json=False).markdown("a **bold** [word](http://evil.example)\x1b[2J")
        shown = terminal.getvalue()

        assert "**" not in shown
        assert "http://evil.example" in shown
        assert "\x1b]8" not in shown
        assert "\x1b[2J" not in shown

    def test_what_is_asked_for_comes_from_stdin_and_leaves_stdout_alone(
        self, monkeypatch: pytest.MonkeyPatch, capsys: Captured
    ) -> None:
        monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n"))

        assert Output(as_json=True).ask("[sure]? ") == "yes"
        assert capsys.readouterr() == ("", "[sure]? ")


class TestForScripts:
    def test_everything_on_stdout_is_an_object_on_a_line(self, capsys: Captured) -> None:
        output = Output(as_json=True)
        output.message(agent("中\n文"), text="not this")
        output.table([agent("b")], columns=("NAME",), rows=[("not this",)])
        output.failure(FAILURE)
        output.error("no such file")
        output.note("aside")
        out, err = capsys.readouterr()

        assert [json.loads(line) for line in out.splitlines()] == [
            {"id": "a1", "display_name": "中\n文"},
            {"id": "a1", "display_name": "b"},
            {
                "error": {
                    "message": "query: must not be empty",
                    "code": "INVALID_ARGUMENT",
                    "reason": "INVALID_FIELD",
                    "fields": {"query": "must not be empty"},
                }
            },
            {"error": {"message": "no such file"}},
        ]
        assert err == "aside\n"
        assert "中" in out

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.text(st.characters(exclude_categories=())))
    def test_any_text_comes_back_from_one_line(self, capsys: Captured, text: str) -> None:
        Output(as_json=True).record({"text": text})
        (line,) = capsys.readouterr().out.splitlines()

        assert json.loads(line) == {"text": text}

    @pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "gbk", "utf-8"])
    def test_it_is_json_in_every_encoding(
        self, monkeypatch: pytest.MonkeyPatch, encoding: str
    ) -> None:
        raw = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
        Output(as_json=True).record({"text": "é 中文 🎉"})

        assert json.loads(raw.getvalue().decode()) == {"text": "é 中文 🎉"}


class TestAsDict:
    def test_fields_are_named_as_in_the_contract(self) -> None:
        assert as_dict(agent("x")) == {"id": "a1", "display_name": "x"}


class TestCounted:
    @pytest.mark.parametrize(("number", "told"), [(0, "0 chunks"), (1, "1 chunk"), (2, "2 chunks")])
    def test_one_alone_is_no_plural(self, number: int, told: str) -> None:
        assert told == counted(number, "chunk")


class TestWord:
    def test_a_value_is_its_name_and_an_unknown_one_its_number(self) -> None:
        name, unknown = agent_pb2.Visibility.Name, agent_pb2.Visibility.ValueType(77)

        assert word(name, agent_pb2.VISIBILITY_TENANT, prefix="VISIBILITY_") == "tenant"
        assert word(name, unknown, prefix="VISIBILITY_") == "77"


class Terminal(io.StringIO):
    """Takes what is written and says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True
