"""Many files into one base."""

from pathlib import Path

import pytest

from cli.client import Gateway
from cli.documents import find_files
from cli.ingest import ingest
from cli.output import Output
from tests.cli.gateway import Document, State


class TestIngest:
    @pytest.mark.parametrize("terminal", [False, True])
    def test_names_cannot_break_the_bars(
        self,
        gateway: Gateway,
        state: State,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        terminal: bool,
    ) -> None:
        if terminal:
            monkeypatch.setenv("FORCE_COLOR", "1")
        for name in ("[red].md", "[/red]/x.md", "a\x1b[2J\nb.md"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("x", encoding="utf-8")
        ingested = ingest(gateway, Output(as_json=False), files=find_files([tmp_path]), into="b1")
        out, err = capsys.readouterr()

        assert len(ingested.documents) == 3
        assert {d.state for d in ingested.documents} == {Document.STATE_READY}
        assert (out, bool(err)) == ("", terminal)
        assert "\x1b[2J" not in err

    def test_a_file_that_is_gone_by_then_is_refused_alone(
        self, gateway: Gateway, state: State, tmp_path: Path
    ) -> None:
        for name in ("a.md", "b.md"):
            (tmp_path / name).write_text("x", encoding="utf-8")
        files = find_files([tmp_path])
        (tmp_path / "a.md").unlink()
        ingested = ingest(gateway, Output(as_json=False), files=files, into="b1")

        (refused,) = ingested.refused.values()
        assert refused == f"{tmp_path}/a.md: cannot be read (No such file or directory)"
        assert [d.display_name for d in ingested.documents] == [files[1].name]
