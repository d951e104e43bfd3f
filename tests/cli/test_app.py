"""What all commands share, seen from a shell."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from chatmind.agent.v1 import agent_pb2

from services.common.errors import (
    FieldViolation,
    InvalidArgumentError,
    UnavailableError,
)
from tests.cli.conftest import Chatmind
from tests.cli.gateway import RUN_ID, SESSION_ID, Base, Hold, State, said

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "cli.main"]


def run(
    *arguments: str | bytes, environment: dict[str, str], stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """A command line in a process of its own."""
    return subprocess.run(
        [*COMMAND, *arguments],
        input=stdin,
        capture_output=True,
        cwd=ROOT,
        env=environment,
        timeout=30,
        check=False,
    )


@contextmanager
def started(
    arguments: Sequence[str], environment: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdout=pipe, stderr=pipe, cwd=ROOT, env=environment
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=10)


class TestFailures:
    def test_a_gateway_that_is_not_there_is_told(
        self, chatmind: Chatmind, environment: dict[str, str]
    ) -> None:
        environment["CHATMIND_SERVER"] = "127.0.0.1:1"
        started_at = time.monotonic()
        result = chatmind("kb", "list")

        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == (
            "error: no ChatMind answers at 127.0.0.1:1; start it with `chatmind up`, or name "
            "another with --server or CHATMIND_SERVER (UNAVAILABLE)\n"
        )
        assert time.monotonic() - started_at < 5

    def test_a_gateway_that_says_so_itself_is_believed(
        self, chatmind: Chatmind, state: State, tmp_path: Path
    ) -> None:
        def refuse(_: str) -> None:
            raise UnavailableError("The database is down.")

        (tmp_path / "a.md").write_text("x", encoding="utf-8")
        state.refuse = refuse
        result = chatmind("kb", "add", str(tmp_path / "a.md"), "--base", "x")

        assert result.stderr == "error: The database is down. (UNAVAILABLE)\n"

    def test_a_wrong_key_is_told(self, chatmind: Chatmind, environment: dict[str, str]) -> None:
        environment["CHATMIND_API_KEY"] = "wrong"
        result = chatmind("kb", "list")

        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == "error: The API key is unknown. (UNAUTHENTICATED)\n"

    def test_no_key_is_told(self, chatmind: Chatmind, environment: dict[str, str]) -> None:
        environment["CHATMIND_API_KEY"] = ""
        result = chatmind("kb", "list")

        assert result.exit_code == 1
        assert result.stderr.startswith("error: no API key: ")

    @pytest.mark.parametrize("as_json", [False, True])
    def test_refused_fields_are_told(self, chatmind: Chatmind, state: State, as_json: bool) -> None:
        state.agents = [agent_pb2.Agent(id="a1", display_name="A")]
        violations = [FieldViolation("text", "must be short")]
        state.streams.append([InvalidArgumentError("text: must be short", violations=violations)])
        result = chatmind("chat", "hi", *(["--json"] if as_json else []))

        assert result.exit_code == 1
        if as_json:
            assert json.loads(result.stdout)["error"]["fields"] == {"text": "must be short"}
        else:
            assert result.stderr.endswith("error: text: must be short (INVALID_FIELD)\n")

    @pytest.mark.parametrize(
        "arguments",
        [
            ["kb", "search", "what?", "--base", "nothing"],
            ["kb", "add", "nowhere", "--base", "x"],
            ["agent", "show", "Nobody"],
            ["key", "revoke", "nothing"],
        ],
    )
    def test_for_scripts_every_failure_is_an_object_on_stdout(
        self, chatmind: Chatmind, arguments: list[str]
    ) -> None:
        result = chatmind(*arguments, "--json")

        assert (result.exit_code, result.stderr) == (1, "")
        assert json.loads(result.stdout)["error"]["message"]

    @pytest.mark.parametrize(
        "arguments",
        [["kb", "nothing"], ["kb", "list", "--nothing"], ["kb", "add"], ["kb", "list", "extra"]],
    )
    def test_a_wrong_use_is_2_and_leaves_stdout_alone(
        self, chatmind: Chatmind, arguments: list[str]
    ) -> None:
        result = chatmind(*arguments)

        assert (result.exit_code, result.stdout) == (2, "")


class TestProcess:
    def test_a_reader_that_has_enough_ends_it_quietly(
        self, state: State, whole_environment: dict[str, str]
    ) -> None:
        state.bases = [Base(id=f"b{number}", display_name="x" * 2_000) for number in range(200)]
        for options in ([], ["--json"]):
            with started(["kb", "list", *options], whole_environment) as process:
                assert process.stdout is not None
                process.stdout.readline()
                process.stdout.close()
                assert process.stderr is not None
                said_to_stderr = process.stderr.read()
                process.wait(20)

            assert (process.returncode, said_to_stderr) == (1, b"")

    def test_ctrl_c_ends_it_quietly_with_130(
        self, state: State, whole_environment: dict[str, str]
    ) -> None:
        state.agents = [agent_pb2.Agent(id="a1", display_name="A")]
        state.streams.append([said("Wait.", 2), Hold()])
        with started(["chat", "hi"], whole_environment) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"Wait.\n"
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=20)

        assert process.returncode == 130
        assert err.decode().splitlines() == [
            (
                "the run goes on, and its answer is shown when you continue; "
                f"stop it with: chatmind run cancel {RUN_ID}"
            ),
            f"continue with: chatmind chat --session {SESSION_ID}",
        ]

    def test_ctrl_c_while_catching_up_tells_that_the_run_goes_on(
        self, state: State, whole_environment: dict[str, str]
    ) -> None:
        state.active_runs.append(RUN_ID)
        state.streams.append([said("Wait.", 2), Hold()])
        with started(["chat", "--session", SESSION_ID], whole_environment) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"Wait.\n"
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=20)

        assert process.returncode == 130
        assert err.decode().startswith("the run goes on, ")
        assert err.decode().endswith(f"chatmind run cancel {RUN_ID}\n")

    def test_a_terminal_that_lacks_characters_gets_question_marks(
        self, state: State, whole_environment: dict[str, str]
    ) -> None:
        state.bases = [Base(id="b1", display_name="é 中文")]
        environment = {**whole_environment, "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
        result = run("kb", "list", environment=environment)
        scripted = run("kb", "list", "--json", environment=environment)

        assert (result.returncode, b"\xe9 ??" in result.stdout) == (0, True)
        assert json.loads(scripted.stdout)["display_name"] == "é 中文"

    def test_an_argument_that_is_no_text_is_told(self, whole_environment: dict[str, str]) -> None:
        result = run("kb", "create", b"caf\xe9", "--json", environment=whole_environment)

        assert (result.returncode, result.stderr) == (1, b"")
        assert json.loads(result.stdout) == {
            "error": {"message": "the arguments are not UTF-8 text"}
        }

    def test_input_that_is_no_text_is_told(
        self, state: State, whole_environment: dict[str, str]
    ) -> None:
        state.agents = [agent_pb2.Agent(id="a1", display_name="A")]
        result = run("chat", environment=whole_environment, stdin=b"caf\xe9\n")

        assert (result.returncode, state.sent) == (1, [])
        assert result.stderr == b"error: the arguments are not UTF-8 text\n"

    def test_help_needs_neither_key_nor_gateway(self, tmp_path: Path) -> None:
        bare = {"PATH": os.environ["PATH"], "CHATMIND_DATA_DIR": str(tmp_path)}
        result = run("kb", "add", "--help", environment=bare)

        assert result.returncode == 0
        assert b"--key-file" in result.stdout
