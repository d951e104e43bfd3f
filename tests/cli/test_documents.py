"""Files on disk into a knowledge base."""

import os
from pathlib import Path

import grpc
import pytest

from cli.client import Gateway
from cli.documents import (
    SourceFile,
    find_files,
    follow,
    upload,
)
from cli.errors import CommandError
from cli.retries import Retries
from services.common.errors import NotFoundError, UnavailableError
from tests.cli.gateway import Document, State


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder to search, and a file outside of it."""
    (tmp_path / "secret.md").write_text("secret", encoding="utf-8")
    (tmp_path / "docs").mkdir()
    return tmp_path / "docs"


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name, encoding="utf-8")


def names(*paths: Path) -> list[str]:
    return [file.name for file in find_files(paths)]


class TestFindFiles:
    def test_a_folder_gives_its_documents_by_their_paths(self, folder: Path) -> None:
        make(folder, "b.md", "a.MD", "sub/c.txt", "sub/deep/d.markdown", "image.png", "README")

        assert names(folder) == [
            "docs/a.MD",
            "docs/b.md",
            "docs/sub/c.txt",
            "docs/sub/deep/d.markdown",
        ]

    def test_hidden_files_and_folders_are_left_out_unless_named(self, folder: Path) -> None:
        make(folder, ".git/a.md", "sub/.b.md", "c.md")

        assert names(folder) == ["docs/c.md"]
        assert names(folder / ".git") == [".git/a.md"]

    def test_the_working_folder_goes_by_its_name(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make(folder, "a.md", "sub/b.md")
        monkeypatch.chdir(folder / "sub")

        assert names(Path()) == ["sub/b.md"]
        assert names(Path("..")) == ["docs/a.md", "docs/sub/b.md"]

    def test_a_file_goes_by_its_name(self, folder: Path) -> None:
        make(folder, "a.md", "sub/b.md")

        assert names(folder / "sub/b.md", folder / "a.md") == ["b.md", "a.md"]

    def test_links_that_run_in_circles_end(self, folder: Path) -> None:
        make(folder, "a.md")
        (folder / "round").symlink_to(folder, target_is_directory=True)
        (folder / "self.md").symlink_to("self.md")
        (folder / "gone.md").symlink_to("nowhere.md")

        assert names(folder) == ["docs/a.md"]

    def test_links_lead_to_files_within_but_not_out_of_the_folder(self, folder: Path) -> None:
        make(folder, "z/real.md")
        (folder / "alias.md").symlink_to(folder / "z/real.md")
        (folder / "leak.md").symlink_to(folder.parent / "secret.md")

        assert names(folder) == ["docs/alias.md"]

    def test_a_link_that_is_named_itself_is_followed(self, folder: Path) -> None:
        (folder / "chosen.md").symlink_to(folder.parent / "secret.md")

        assert names(folder / "chosen.md") == ["chosen.md"]

    def test_a_file_is_taken_once_however_often_it_is_named(self, folder: Path) -> None:
        make(folder, "a.md", "b.md")

        assert names(folder, folder / "a.md", folder) == ["docs/a.md", "docs/b.md"]

    def test_two_of_one_name_would_replace_each_other_and_are_refused(self, folder: Path) -> None:
        make(folder, "one/readme.md", "two/readme.md")
        with pytest.raises(CommandError) as caught:
            names(folder / "one/readme.md", folder / "two/readme.md")

        assert str(caught.value) == (
            f"{folder}/one/readme.md and {folder}/two/readme.md would both be called 'readme.md'; "
            "add them from a folder above both"
        )
        assert len(names(folder)) == 2

    def test_a_name_that_is_no_utf8_is_made_so(self, folder: Path) -> None:
        raw = os.fsencode(folder) + b"/caf\xe9.md"
        Path(os.fsdecode(raw)).write_bytes(b"x")

        assert names(folder) == ["docs/caf\ufffd.md"]

    @pytest.mark.parametrize(
        ("name", "told"),
        [
            ("nothing.md", "no such file or folder"),
            ("image.png", "only .markdown, .md, .txt files can be added"),
            ("pipe.md", "only .markdown, .md, .txt files can be added"),
        ],
    )
    def test_what_cannot_be_added_is_told(self, folder: Path, name: str, told: str) -> None:
        make(folder, "image.png")
        os.mkfifo(folder / "pipe.md")
        with pytest.raises(CommandError) as caught:
            names(folder / name)

        assert str(caught.value) == f"{folder / name}: {told}"

    def test_special_files_in_a_folder_are_left_out(self, folder: Path) -> None:
        os.mkfifo(folder / "pipe.md")

        assert names(folder) == []

    def test_a_folder_that_cannot_be_read_is_told(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Root may read everything, so that the refusal has to be staged."""

        def refuse(path: object) -> None:
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr(os, "scandir", refuse)
        with pytest.raises(CommandError, match=r"docs: cannot be read \(Permission denied\)$"):
            names(folder)


class TestUpload:
    @pytest.mark.parametrize("size", [0, 1, 256 * 1024, 256 * 1024 + 1, 5 * 1024 * 1024])
    def test_all_of_a_file_arrives(
        self, gateway: Gateway, state: State, tmp_path: Path, size: int
    ) -> None:
        """The gateway checks the hash as well."""
        content = os.urandom(size)
        (tmp_path / "a.txt").write_bytes(content)
        document = upload(gateway, "b1", SourceFile(tmp_path / "a.txt", "docs/a.txt"))

        assert state.contents == {"docs/a.txt": content}
        assert (document.knowledge_base_id, document.media_type) == ("b1", "text/plain")

    @pytest.mark.parametrize("name", ["gone.md", "folder.md"])
    def test_one_that_cannot_be_read_is_told(
        self, gateway: Gateway, state: State, tmp_path: Path, name: str
    ) -> None:
        (tmp_path / "folder.md").mkdir()
        with pytest.raises(CommandError, match=rf"/{name}: cannot be read \("):
            upload(gateway, "b1", SourceFile(tmp_path / name, name))

        assert state.contents == {}


class TestFollow:
    @pytest.fixture(autouse=True)
    def document(self, state: State) -> None:
        state.documents = [Document(id="d1", display_name="a.md")]

    def followed(self, gateway: Gateway) -> list[tuple[int, int]]:
        retries = Retries(pause=0, attempts=2)
        return [(d.state, d.chunks_done) for d in follow(gateway, "d1", retries=retries)]

    def test_it_goes_on_to_the_last_state(self, gateway: Gateway, state: State) -> None:
        ready = Document(state=Document.STATE_READY, chunks_done=2)
        state.watches.append([Document(state=Document.STATE_INGESTING, chunks_done=1), ready])

        assert self.followed(gateway) == [(Document.STATE_INGESTING, 1), (Document.STATE_READY, 2)]

    def test_a_watch_that_breaks_or_ends_early_is_taken_up_again(
        self, gateway: Gateway, state: State
    ) -> None:
        begun = Document(state=Document.STATE_INGESTING, chunks_done=1)
        away = UnavailableError("Draining.")
        state.watches.extend([[begun, away], [begun], [Document(state=Document.STATE_FAILED)]])

        assert [how for how, _ in self.followed(gateway)] == [
            Document.STATE_INGESTING,
            Document.STATE_INGESTING,
            Document.STATE_FAILED,
        ]

    def test_one_that_was_deleted_is_told(self, gateway: Gateway, state: State) -> None:
        state.watches.append([NotFoundError("No such document.")])
        with pytest.raises(grpc.RpcError):
            self.followed(gateway)
