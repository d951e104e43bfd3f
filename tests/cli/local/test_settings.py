"""Whether the services can read their settings."""

from pathlib import Path

import pytest

from cli.local.errors import StartError
from cli.local.services import LocalService, plan_layout, plan_services
from cli.local.settings import check_settings
from cli.output import Output


def services(folder: Path, *, database_url: str = "postgresql://") -> list[LocalService]:
    return plan_services(plan_layout(folder), database_url=database_url)


class TestCheckSettings:
    def test_those_that_the_supervisor_tells_them_are_right(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        check_settings(services(tmp_path), Output(as_json=False))

        assert capsys.readouterr() == ("", "")

    def test_one_that_several_read_is_told_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CHATMIND_BUS", "pigeon")
        with pytest.raises(StartError) as caught:
            check_settings(services(tmp_path), Output(as_json=False))

        (line,) = str(caught.value).splitlines()
        assert line.startswith("CHATMIND_BUS: ")

    def test_one_of_all_services_that_is_misspelled_is_told(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setenv("CHATMIND_API_KEY", "known to the command")
        monkeypatch.setenv("CHATMIND_DATABSE_URL", "postgresql://db")
        check_settings(services(tmp_path), Output(as_json=False))

        assert capsys.readouterr().err == (
            "warning: CHATMIND_DATABSE_URL is not a setting of ChatMind; "
            "did you mean CHATMIND_DATABASE_URL?\n"
        )
