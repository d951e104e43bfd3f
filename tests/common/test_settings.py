"""Settings from the environment."""

from pathlib import Path
from typing import Annotated

import pytest
from pydantic import AliasChoices, Field, PostgresDsn, SecretStr, StringConstraints, ValidationError

from services.common.settings import (
    Address,
    DatabaseSettings,
    ServerSettings,
    Target,
    misspelled,
    read_settings,
    settings_config,
    wrong_settings,
)

SECRET = "hunter2hunter2"


class ExampleSettings(ServerSettings):
    """Settings with one field of each kind that a service has."""

    model_config = settings_config("CHATMIND_EXAMPLE_")

    listen: Address = "127.0.0.1:8051"
    peer_address: Target = "127.0.0.1:8052"
    database_url: PostgresDsn = Field(validation_alias="CHATMIND_DATABASE_URL")
    token: Annotated[SecretStr, Field(min_length=8)] = SecretStr("long enough")
    mode: Annotated[str, StringConstraints(pattern="^(a|b)$")] = "a"
    weights: dict[str, float] = Field(default_factory=dict)
    place: str = Field(
        default="", validation_alias=AliasChoices("CHATMIND_EXAMPLE_PLACE", "EXAMPLE_PLACE")
    )


class OtherSettings(ServerSettings):
    """Settings of another service."""

    model_config = settings_config("CHATMIND_OTHER_")

    listen: Address = "127.0.0.1:8052"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """An environment with all that the settings need."""
    monkeypatch.setenv("CHATMIND_EXAMPLE_IDENTITY_DIR", str(tmp_path))
    monkeypatch.setenv("CHATMIND_DATABASE_URL", "postgresql://127.0.0.1/chatmind")
    return monkeypatch


def refused(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What is told about settings that do not hold."""
    with pytest.raises(SystemExit) as caught:
        read_settings(ExampleSettings)
    out, err = capsys.readouterr()
    assert (caught.value.code, out) == (2, "")
    return err.splitlines()


class TestReadSettings:
    def test_what_is_set_wins_over_the_default(
        self, environment: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        environment.setenv("CHATMIND_EXAMPLE_LISTEN", "0.0.0.0:9000")
        settings = read_settings(ExampleSettings)

        assert settings.listen == "0.0.0.0:9000"
        assert settings.identity_dir == tmp_path
        assert settings.max_message_bytes == 20 * 1024 * 1024

    def test_an_empty_variable_is_an_unset_one(self, environment: pytest.MonkeyPatch) -> None:
        environment.setenv("CHATMIND_EXAMPLE_LISTEN", "")

        assert read_settings(ExampleSettings).listen == "127.0.0.1:8051"

    def test_settings_cannot_be_changed(self) -> None:
        with pytest.raises(ValidationError):
            read_settings(ExampleSettings).mode = "b"

    def test_every_wrong_one_is_named_by_its_variable(
        self, environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        environment.delenv("CHATMIND_EXAMPLE_IDENTITY_DIR")
        environment.setenv("CHATMIND_EXAMPLE_DRAIN_SECONDS", "61")
        environment.setenv("CHATMIND_EXAMPLE_MAX_MESSAGE_BYTES", "many")
        environment.setenv("CHATMIND_DATABASE_URL", "nowhere")
        told = [line.partition(": ")[0] for line in refused(capsys)]

        assert sorted(told) == [
            "CHATMIND_DATABASE_URL",
            "CHATMIND_EXAMPLE_DRAIN_SECONDS",
            "CHATMIND_EXAMPLE_IDENTITY_DIR",
            "CHATMIND_EXAMPLE_MAX_MESSAGE_BYTES",
        ]

    def test_a_bound_is_told(
        self, environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        environment.setenv("CHATMIND_EXAMPLE_GRACE_SECONDS", "-1")

        assert refused(capsys) == [
            "CHATMIND_EXAMPLE_GRACE_SECONDS: Input should be greater than or equal to 0"
        ]

    @pytest.mark.parametrize(
        ("variable", "value"),
        [
            ("CHATMIND_EXAMPLE_TOKEN", SECRET[:7]),
            ("CHATMIND_DATABASE_URL", f"mysql://ada:{SECRET}@db/x"),
            ("CHATMIND_DATABASE_URL", f"postgresql://ada:{SECRET}@db:notaport/x"),
            ("CHATMIND_EXAMPLE_MODE", SECRET),
            ("CHATMIND_EXAMPLE_GRACE_SECONDS", SECRET),
            ("CHATMIND_EXAMPLE_LISTEN", f"{SECRET}:x"),
            ("CHATMIND_EXAMPLE_WEIGHTS", f'{{"{SECRET}'),
            ("CHATMIND_EXAMPLE_WEIGHTS", f'{{"a": "{SECRET}"}}'),
            ("CHATMIND_EXAMPLE_LOG_LEVEL", SECRET),
        ],
    )
    def test_what_it_was_set_to_is_never_told(
        self,
        environment: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        variable: str,
        value: str,
    ) -> None:
        environment.setenv(variable, value)
        told = "\n".join(refused(capsys))

        assert told
        assert SECRET[:7] not in told


class TestWrongSettings:
    def test_what_is_to_be_told_besides_counts_as_set(
        self, environment: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        environment.delenv("CHATMIND_EXAMPLE_IDENTITY_DIR")
        environment.delenv("CHATMIND_DATABASE_URL")
        told = {
            "CHATMIND_EXAMPLE_IDENTITY_DIR": str(tmp_path),
            "CHATMIND_DATABASE_URL": "postgresql://127.0.0.1/chatmind",
            "CHATMIND_EXAMPLE_PLACE": "here",
            "CHATMIND_EXAMPLE_MODE": "",
            "CHATMIND_OTHER_LISTEN": "not for this one",
        }

        assert wrong_settings(ExampleSettings, told) == []
        assert [line.partition(":")[0] for line in wrong_settings(ExampleSettings, {})] == [
            "CHATMIND_EXAMPLE_IDENTITY_DIR",
            "CHATMIND_DATABASE_URL",
        ]

    def test_it_is_told_in_words_and_by_variable(self, environment: pytest.MonkeyPatch) -> None:
        environment.setenv("CHATMIND_EXAMPLE_GRACE_SECONDS", "-1")

        assert wrong_settings(ExampleSettings, {"CHATMIND_EXAMPLE_LISTEN": "foo"}) == [
            "CHATMIND_EXAMPLE_LISTEN: must be host:port, such as 127.0.0.1:8050",
            "CHATMIND_EXAMPLE_GRACE_SECONDS: Input should be greater than or equal to 0",
        ]


class TestMisspelled:
    @pytest.mark.parametrize(
        ("variable", "advice"),
        [
            ("CHATMIND_EXAMPLE_DRAIN_SECOND", "; did you mean CHATMIND_EXAMPLE_DRAIN_SECONDS?"),
            ("chatmind_example_listn", "; did you mean CHATMIND_EXAMPLE_LISTEN?"),
            ("CHATMIND_EXAMPLE_DATABASE_URL", "; did you mean CHATMIND_DATABASE_URL?"),
            ("CHATMIND_EXAMPLE_PLAICE", "; did you mean CHATMIND_EXAMPLE_PLACE?"),
            ("CHATMIND_EXAMPLE_XYZZYXYZZYXYZZYXYZZY", ""),
        ],
    )
    def test_what_sets_nothing_is_named_with_what_may_be_meant(
        self, variable: str, advice: str
    ) -> None:
        assert list(misspelled(ExampleSettings, environment={variable: "5"})) == [
            f"{variable} is not a setting of ChatMind{advice}"
        ]

    @pytest.mark.parametrize(
        "variable",
        [
            "CHATMIND_EXAMPLE_LISTEN",
            "chatmind_example_listen",
            "CHATMIND_EXAMPLE_PLACE",
            "EXAMPLE_PLAICE",
            "CHATMIND_OTHER_LISTN",
            "CHATMIND_DATABSE_URL",
            "CHATMIND_EXAMPLE_SERVICE_HOST",
            "CHATMIND_EXAMPLE_SERVICE_PORT_GRPC",
            "CHATMIND_EXAMPLE_PORT",
            "CHATMIND_EXAMPLE_PORT_8051_TCP_ADDR",
        ],
    )
    def test_what_sets_something_or_is_for_another_is_not(self, variable: str) -> None:
        assert list(misspelled(ExampleSettings, environment={variable: "5"})) == []

    def test_an_empty_one_is_not(self) -> None:
        assert list(misspelled(ExampleSettings, environment={"CHATMIND_EXAMPLE_LISTN": ""})) == []

    def test_for_all_services_at_once_all_variables_of_chatmind_are_looked_at(self) -> None:
        environment = {
            "CHATMIND_EXAMPLE_LISTEN": "a:1",
            "CHATMIND_OTHER_LISTN": "a:1",
            "CHATMIND_DATABSE_URL": "x",
            "CHATMIND_API_KEY": "x",
            "OTHER": "x",
        }
        told = misspelled(
            *(ExampleSettings, OtherSettings),
            besides=frozenset({"CHATMIND_API_KEY"}),
            environment=environment,
        )

        assert [line.partition("did you mean ")[2] for line in told] == [
            "CHATMIND_DATABASE_URL?",
            "CHATMIND_OTHER_LISTEN?",
        ]

    def test_a_service_says_so_at_its_start_and_starts(
        self, environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        environment.setenv("CHATMIND_EXAMPLE_GRACE_SECOND", SECRET)
        settings = read_settings(ExampleSettings)

        assert settings.grace_seconds == 5
        assert capsys.readouterr().err == (
            "warning: CHATMIND_EXAMPLE_GRACE_SECOND is not a setting of ChatMind; "
            "did you mean CHATMIND_EXAMPLE_GRACE_SECONDS?\n"
        )


class TestAddress:
    @pytest.mark.parametrize(
        "address", ["127.0.0.1:8051", "localhost:0", "0.0.0.0:65535", "[::]:8051", "[::1]:1"]
    )
    def test_host_and_port_make_an_address(
        self, environment: pytest.MonkeyPatch, address: str
    ) -> None:
        environment.setenv("CHATMIND_EXAMPLE_LISTEN", address)

        assert read_settings(ExampleSettings).listen == address

    @pytest.mark.parametrize(
        "address",
        [
            "8051",
            ":8051",
            "host",
            "host:",
            "host:x",
            "host:65536",
            "::1:80",
            "http://a:80",
            "a:1\n",
        ],
    )
    def test_anything_else_does_not(
        self,
        environment: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        address: str,
    ) -> None:
        environment.setenv("CHATMIND_EXAMPLE_LISTEN", address)

        assert refused(capsys)[0].startswith("CHATMIND_EXAMPLE_LISTEN: ")


class TestTarget:
    @pytest.mark.parametrize(
        "target", ["127.0.0.1:8051", "dns:///agent.chatmind:8051", "[::1]:8051", "dns:///[::1]:1"]
    )
    def test_an_address_and_a_name_of_many_replicas_are_targets(
        self, environment: pytest.MonkeyPatch, target: str
    ) -> None:
        environment.setenv("CHATMIND_EXAMPLE_PEER_ADDRESS", target)

        assert read_settings(ExampleSettings).peer_address == target

    @pytest.mark.parametrize(
        "target", ["agent", "dns:///agent", "https://a:80", "a:65536", "::1:80"]
    )
    def test_anything_else_is_not(
        self,
        environment: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        target: str,
    ) -> None:
        environment.setenv("CHATMIND_EXAMPLE_PEER_ADDRESS", target)

        assert refused(capsys)[0].startswith("CHATMIND_EXAMPLE_PEER_ADDRESS: ")


class TestDatabaseSettings:
    def test_the_address_is_given_but_never_shown(self, environment: pytest.MonkeyPatch) -> None:
        class StoreSettings(DatabaseSettings):
            model_config = settings_config("CHATMIND_EXAMPLE_")
            listen: Address = "127.0.0.1:8051"

        environment.setenv("CHATMIND_DATABASE_URL", f"postgresql://ada:{SECRET}@db/chatmind")
        settings = read_settings(StoreSettings)

        assert settings.dsn == f"postgresql://ada:{SECRET}@db/chatmind"
        assert SECRET not in repr(settings)
