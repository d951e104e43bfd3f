"""Which bus it is, read from the environment."""

import pytest

from services.common.bus.settings import BusSettings
from services.common.settings import read_settings, settings_config


class Settings(BusSettings):
    """A service's."""

    model_config = settings_config("CHATMIND_TEST_")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What every service is told."""
    for name, value in (
        ("CHATMIND_TEST_LISTEN", "127.0.0.1:0"),
        ("CHATMIND_TEST_IDENTITY_DIR", "keys"),
        ("CHATMIND_DATABASE_URL", "postgresql://x"),
        ("CHATMIND_BUS", ""),
        ("CHATMIND_NATS_URL", ""),
    ):
        monkeypatch.setenv(name, value)


class TestBusSettings:
    def test_it_is_postgresql_unless_something_else_is_asked_for(self) -> None:
        settings = read_settings(Settings)

        assert (settings.bus, settings.nats_url) == ("postgres", None)

    @pytest.mark.parametrize(
        "url",
        [
            "nats://nats:4222",
            "nats://127.0.0.1",
            "tls://alice:s%40t@nats.example:4222",
            "nats://token@[::1]:4222/",
            "nats://a:4222,nats://b:4222,tls://c:4222",
        ],
    )
    def test_servers_are_named_by_addresses(
        self, monkeypatch: pytest.MonkeyPatch, url: str
    ) -> None:
        monkeypatch.setenv("CHATMIND_BUS", "nats")
        monkeypatch.setenv("CHATMIND_NATS_URL", url)

        settings = read_settings(Settings)

        assert settings.nats_url is not None
        assert url == settings.nats_url.get_secret_value()
        assert url not in repr(settings)

    @pytest.mark.parametrize(
        ("variables", "told"),
        [
            ({"CHATMIND_BUS": "nats"}, "CHATMIND_NATS_URL: required"),
            ({"CHATMIND_BUS": "kafka"}, "CHATMIND_BUS: Input should be 'postgres' or 'nats'"),
            *(
                ({"CHATMIND_NATS_URL": url}, "CHATMIND_NATS_URL: must be nats://")
                for url in (
                    "sekret",
                    "http://sekret:4222",
                    "nats://",
                    "nats://sekret:99999",
                    "nats://sekret:0",
                    "nats://[sekret",
                    "nats://a:4222,",
                    "nats://a/sekret",
                    "nats://a?sekret",
                )
            ),
        ],
    )
    def test_a_wrong_one_stops_the_start_with_a_line_that_holds_no_secret(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        variables: dict[str, str],
        told: str,
    ) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

        with pytest.raises(SystemExit) as ended:
            read_settings(Settings)

        line = capsys.readouterr().err
        assert ended.value.code == 2
        assert line.startswith(told)
        assert line.count("\n") == 1
        assert "sekret" not in line
