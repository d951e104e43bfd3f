"""`chatmind kb`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from chatmind.knowledge.v1 import document_pb2, knowledge_base_pb2, search_pb2

from services.common.errors import InvalidArgumentError, UnavailableError
from tests.cli.conftest import Chatmind
from tests.cli.gateway import Base, Document, State


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """A folder with three documents."""
    folder = tmp_path / "docs"
    (folder / "more").mkdir(parents=True)
    for name in ("a.md", "b.txt", "more/c.md"):
        (folder / name).write_text(f"# {name}\n", encoding="utf-8")
    return folder


class TestList:
    def test_names_that_look_like_markup_or_commands_are_names(
        self, chatmind: Chatmind, state: State
    ) -> None:
        state.bases = [
            Base(id="b1", display_name="[bold]x[/bold] [/] :bug:"),
            Base(id="b2", display_name="two\nlines\tand \x1b[31mred\x9b0m"),
        ]
        result = chatmind("kb", "list")
        rows = [line.split() for line in result.stdout.splitlines()[1:]]

        assert result.exit_code == 0
        assert rows[0] == ["[bold]x[/bold]", "[/]", ":bug:", "0", "0", "b1"]
        assert rows[1] == ["two", "lines", "and", "[31mred0m", "0", "0", "b2"]

    def test_ids_are_whole_in_a_pipe(self, chatmind: Chatmind, state: State) -> None:
        wide = Base(id="0190a5b8-0000-7000-8000-000000000000", display_name="名" * 60)
        state.bases = [wide]

        assert wide.id in chatmind("kb", "list").stdout

    def test_for_scripts_each_is_an_object_on_a_line(
        self, chatmind: Chatmind, state: State
    ) -> None:
        state.bases = [Base(id=f"b{n}", display_name="a\nb\u2028\x9b") for n in range(3)]
        lines = chatmind("kb", "list", "--json").stdout.splitlines()

        assert [json.loads(line)["id"] for line in lines] == ["b0", "b1", "b2"]
        assert json.loads(lines[0])["display_name"] == "a\nb\u2028\x9b"


class TestCreate:
    def test_it_is_made_as_described(self, chatmind: Chatmind, state: State) -> None:
        result = chatmind("kb", "create", "Handbook", "--description", "All of it.", "--shared")
        (made,) = state.bases

        assert result.stdout == f"{made.id}\n"
        assert (made.display_name, made.description) == ("Handbook", "All of it.")
        assert made.visibility == knowledge_base_pb2.VISIBILITY_TENANT


class TestAdd:
    def test_a_folder_becomes_a_base(self, chatmind: Chatmind, state: State, docs: Path) -> None:
        result = chatmind("kb", "add", str(docs), "--base", "new")

        assert (result.exit_code, result.stdout) == (0, "")
        assert result.stderr == "3 documents ready, 6 chunks\n"
        assert [base.display_name for base in state.bases] == ["new"]
        assert sorted(state.contents) == ["docs/a.md", "docs/b.txt", "docs/more/c.md"]

    def test_a_base_that_is_there_is_used(
        self, chatmind: Chatmind, state: State, docs: Path
    ) -> None:
        state.bases = [Base(id="b1", display_name="old")]
        chatmind("kb", "add", str(docs / "a.md"), "--base", "old")

        assert len(state.bases) == 1
        assert state.documents[0].knowledge_base_id == "b1"

    def test_for_scripts_each_document_is_an_object(
        self, chatmind: Chatmind, state: State, docs: Path
    ) -> None:
        result = chatmind("kb", "add", str(docs), "--base", "new", "--json")
        added = [json.loads(line) for line in result.stdout.splitlines()]

        assert [each["display_name"] for each in added] == sorted(state.contents)
        assert {each["state"] for each in added} == {"STATE_READY"}

    def test_one_that_is_refused_does_not_stop_the_rest(
        self, chatmind: Chatmind, state: State, docs: Path
    ) -> None:
        state.refuse = _refusing("docs/a.md", InvalidArgumentError("Not UTF-8."))
        result = chatmind("kb", "add", str(docs), "--base", "new")

        assert result.exit_code == 1
        assert result.stderr.splitlines() == [
            "error: docs/a.md: Not UTF-8. (INVALID_FIELD)",
            "2 documents ready, 4 chunks",
        ]

    def test_a_name_that_the_service_told_is_not_told_twice(
        self, chatmind: Chatmind, state: State, docs: Path
    ) -> None:
        state.refuse = _refusing("docs/a.md", InvalidArgumentError("docs/a.md: not UTF-8"))
        result = chatmind("kb", "add", str(docs), "--base", "new")

        assert result.stderr.splitlines()[0] == "error: docs/a.md: not UTF-8 (INVALID_FIELD)"

    def test_for_scripts_a_refusal_is_an_object_too(
        self, chatmind: Chatmind, state: State, docs: Path
    ) -> None:
        state.refuse = _refusing("docs/a.md", InvalidArgumentError("Not UTF-8."))
        result = chatmind("kb", "add", str(docs), "--base", "new", "--json")
        lines = [json.loads(line) for line in result.stdout.splitlines()]

        assert lines[-1] == {"error": {"message": "docs/a.md: Not UTF-8. (INVALID_FIELD)"}}

    def test_a_gateway_that_is_down_stops_all(
        self, chatmind: Chatmind, state: State, docs: Path
    ) -> None:
        state.refuse = _refusing("docs/b.txt", UnavailableError("No database."))
        result = chatmind("kb", "add", str(docs), "--base", "new")

        assert (result.exit_code, sorted(state.contents)) == (1, ["docs/a.md"])
        assert result.stderr == "error: No database. (UNAVAILABLE)\n"

    def test_one_that_cannot_be_ingested_is_told(
        self, chatmind: Chatmind, state: State, docs: Path
    ) -> None:
        failed = Document(
            state=Document.STATE_FAILED,
            error=document_pb2.DocumentError(message="Piece 3 \x1b[2Jis too long."),
        )
        state.watches.append([Document(state=Document.STATE_INGESTING, chunks_total=9), failed])
        result = chatmind("kb", "add", str(docs / "a.md"), "--base", "new")

        assert result.exit_code == 1
        assert result.stderr.splitlines() == [
            "error: a.md: Piece 3 [2Jis too long.",
            "0 documents ready, 0 chunks",
        ]

    def test_nothing_to_add_makes_no_base(
        self, chatmind: Chatmind, state: State, tmp_path: Path
    ) -> None:
        result = chatmind("kb", "add", str(tmp_path), "--base", "new")

        assert (result.exit_code, state.bases) == (1, [])
        assert result.stderr == "error: there is no document to add\n"


class TestDocuments:
    def test_they_are_listed_with_their_state(self, chatmind: Chatmind, state: State) -> None:
        state.bases = [Base(id="b1", display_name="x")]
        state.documents = [
            Document(id="d1", display_name="a.md", state=Document.STATE_READY, size_bytes=7),
            Document(id="d2", display_name="b.md", state=Document.State.ValueType(77)),
        ]
        rows = [
            line.split() for line in chatmind("kb", "documents", "--base", "x").stdout.split("\n")
        ]

        assert rows[1:3] == [["a.md", "ready", "0", "7", "d1"], ["b.md", "77", "0", "0", "d2"]]


class TestSearch:
    def test_passages_are_shown_with_their_place(self, chatmind: Chatmind, state: State) -> None:
        state.bases = [Base(id="b1", display_name="x")]
        chunk = document_pb2.Chunk(
            heading_path=["A", "B\n\x1b[7m"], text="first\n\x1bsecond", start_line=4, end_line=5
        )
        state.hits = [search_pb2.Hit(document_name="a.md", chunk=chunk, score=0.51239)] * 3
        result = chatmind("kb", "search", "what?", "--base", "x", "--top-k", "1")

        assert result.stdout == ("0.512  a.md > A > B [7m  (lines 4-5)\n    first\n    second\n\n")

    def test_an_empty_base_is_told(self, chatmind: Chatmind, state: State) -> None:
        state.bases = [Base(id="b1", display_name="x")]
        result = chatmind("kb", "search", "what?", "--base", "x")

        assert (result.exit_code, result.stdout) == (0, "")
        assert result.stderr.startswith("'x' holds nothing to search; ")

    @pytest.mark.parametrize("top_k", ["0", "101", "x"])
    def test_how_many_is_bounded(self, chatmind: Chatmind, top_k: str) -> None:
        result = chatmind("kb", "search", "what?", "--base", "x", "--top-k", top_k)

        assert (result.exit_code, result.stdout) == (2, "")


class TestDelete:
    @pytest.fixture(autouse=True)
    def base(self, state: State) -> None:
        state.bases = [Base(id="b1", display_name="x")]
        state.documents = [
            Document(id=f"d{number}", display_name=f"{number}.md") for number in range(5)
        ]

    @pytest.mark.parametrize(
        ("said", "deleted"), [("y\n", ["b1"]), ("YES\n", ["b1"]), ("n\n", []), ("\n", []), ("", [])]
    )
    def test_it_asks_on_stderr_and_takes_only_yes(
        self, chatmind: Chatmind, state: State, said: str, deleted: list[str]
    ) -> None:
        result = chatmind("kb", "delete", "--base", "x", "--json", stdin=said)

        assert state.deleted == deleted
        assert result.exit_code == (0 if deleted else 1)
        assert [json.loads(line) for line in result.stdout.splitlines()] == (
            [{"documents": "5"}] if deleted else []
        )
        assert "Delete knowledge base 'x' for good? [y/N]" in result.stderr

    def test_one_document_is_found_by_its_name_on_any_page(
        self, chatmind: Chatmind, state: State
    ) -> None:
        result = chatmind("kb", "delete", "--base", "x", "--document", "4.md", "--yes")

        assert state.deleted == ["d4"]
        assert result.stdout == "deleted 1 document, 3 chunks\n"

    def test_one_that_is_not_there_is_told(self, chatmind: Chatmind, state: State) -> None:
        result = chatmind("kb", "delete", "--base", "x", "--document", "9.md", "--yes")

        assert (result.exit_code, state.deleted) == (1, [])
        assert result.stderr == "error: no document is called '9.md'\n"

    @pytest.mark.parametrize("names", [("--base", ""), ("--base", "x", "--document", "")])
    def test_an_empty_name_deletes_nothing(
        self, chatmind: Chatmind, state: State, names: tuple[str, ...]
    ) -> None:
        """A script may pass a variable that is not set."""
        result = chatmind("kb", "delete", *names, "--yes")

        assert (result.exit_code, state.deleted) == (1, [])
        assert "is called ''" in result.stderr


def _refusing(name: str, error: Exception) -> Callable[[str], None]:
    def refuse(given: str) -> None:
        if given == name:
            raise error

    return refuse
