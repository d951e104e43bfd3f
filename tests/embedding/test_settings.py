from pathlib import Path

import pytest

from services.common.settings import read_settings
from services.embedding.settings import EmbeddingSettings, http_url, url_of_ollama

NAMES = ("OLLAMA_HOST", "OPENAI_BASE_URL", "OPENAI_API_KEY")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CHATMIND_EMBEDDING_IDENTITY_DIR", "keys")


def read(monkeypatch: pytest.MonkeyPatch, **variables: str) -> EmbeddingSettings:
    for name, value in variables.items():
        prefix = "" if name in NAMES else "CHATMIND_EMBEDDING_"
        monkeypatch.setenv(prefix + name, value)
    return read_settings(EmbeddingSettings)


class TestUrlOfOllama:
    @pytest.mark.parametrize(
        ("host", "url"),
        [
            ("", "http://127.0.0.1:11434"),
            ("127.0.0.1:11434", "http://127.0.0.1:11434"),
            ("gpu-box", "http://gpu-box:11434"),
            (":8000", "http://127.0.0.1:8000"),
            ("0.0.0.0", "http://127.0.0.1:11434"),
            ("0.0.0.0:9000", "http://127.0.0.1:9000"),
            ("[::1]:9000", "http://[::1]:9000"),
            ("[::]", "http://127.0.0.1:11434"),
            ("http://gpu-box", "http://gpu-box:80"),
            ("https://gpu-box/ollama/", "https://gpu-box:443/ollama"),
            (" gpu-box:1 ", "http://gpu-box:1"),
        ],
    )
    def test_what_is_missing_is_filled_in(self, host: str, url: str) -> None:
        assert url_of_ollama(host) == url

    @pytest.mark.parametrize("host", ["ftp://gpu-box", "gpu-box:port", "gpu-box:70000", "http://["])
    def test_what_is_no_address_is_refused(self, host: str) -> None:
        with pytest.raises(ValueError, match=r"."):
            url_of_ollama(host)


class TestHttpUrl:
    def test_a_slash_at_the_end_goes(self) -> None:
        assert http_url("https://api.example.com/v1/") == "https://api.example.com/v1"

    @pytest.mark.parametrize("url", ["", "api.example.com/v1", "ftp://x/v1", "https://"])
    def test_what_is_no_url_is_refused(self, url: str) -> None:
        with pytest.raises(ValueError, match="http"):
            http_url(url)


class TestEmbeddingSettings:
    def test_nothing_need_be_set_but_the_keys(self, monkeypatch: pytest.MonkeyPatch) -> None:
        settings = read(monkeypatch)

        assert settings.identity_dir == Path("keys")
        assert settings.listen == "127.0.0.1:8053"
        assert settings.backend is None
        assert settings.ollama_url == "http://127.0.0.1:11434"
        assert (settings.ollama_model, settings.ollama_dimensions) == ("bge-m3", 1024)
        assert (settings.serves_ollama, settings.serves_openai) == (True, False)

    def test_an_empty_backend_is_an_unset_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert read(monkeypatch, BACKEND="").backend is None

    @pytest.mark.parametrize(
        ("variables", "ollama", "openai"),
        [
            ({"BACKEND": "bundled"}, False, False),
            ({"BACKEND": "ollama"}, True, False),
            ({"BACKEND": "openai"}, False, True),
            ({"BACKEND": "bundled", "OLLAMA_HOST": "gpu-box"}, True, False),
            ({"OPENAI_MODEL": "text-embedding-3-large"}, True, True),
            ({"OPENAI_API_KEY": "k"}, True, False),
        ],
    )
    def test_what_is_configured_can_be_asked_for(
        self,
        monkeypatch: pytest.MonkeyPatch,
        variables: dict[str, str],
        ollama: bool,
        openai: bool,
    ) -> None:
        settings = read(monkeypatch, **variables)

        assert (settings.serves_ollama, settings.serves_openai) == (ollama, openai)

    def test_what_everybody_calls_openai_is_taken_from_there(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings = read(
            monkeypatch, OPENAI_BASE_URL="https://shared.example/v1/", OPENAI_API_KEY="shared"
        )

        assert settings.openai_base_url == "https://shared.example/v1"
        assert settings.openai_api_key.get_secret_value() == "shared"

    def test_our_own_variables_go_before_everybody_s(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CHATMIND_EMBEDDING_OPENAI_API_KEY", "own")

        settings = read(monkeypatch, OPENAI_API_KEY="shared")

        assert settings.openai_api_key.get_secret_value() == "own"

    def test_the_key_is_not_shown(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert "hush" not in repr(read(monkeypatch, OPENAI_API_KEY="hush"))

    def test_sizes_of_known_models_are_known(self, monkeypatch: pytest.MonkeyPatch) -> None:
        settings = read(monkeypatch, BACKEND="openai", OPENAI_MODEL="text-embedding-3-large")

        assert settings.openai_size == 3072

    @pytest.mark.parametrize(
        ("variables", "told"),
        [
            ({"BACKEND": "faiss"}, "CHATMIND_EMBEDDING_BACKEND"),
            ({"MAX_BATCH_SIZE": "0"}, "CHATMIND_EMBEDDING_MAX_BATCH_SIZE"),
            ({"MAX_BATCH_SIZE": "257"}, "CHATMIND_EMBEDDING_MAX_BATCH_SIZE"),
            ({"OLLAMA_TIMEOUT_SECONDS": "0"}, "CHATMIND_EMBEDDING_OLLAMA_TIMEOUT_SECONDS"),
            ({"OLLAMA_TIMEOUT_SECONDS": "inf"}, "CHATMIND_EMBEDDING_OLLAMA_TIMEOUT_SECONDS"),
            ({"OLLAMA_HOST": "ftp://x"}, "OLLAMA_HOST"),
            ({"OPENAI_BASE_URL": "nowhere"}, "OPENAI_BASE_URL"),
            (
                {"BACKEND": "openai", "OPENAI_MODEL": "my-own"},
                "CHATMIND_EMBEDDING_OPENAI_DIMENSIONS",
            ),
            ({"OLLAMA_MODEL": "use-m3"}, "two models have the same name"),
            (
                {"OPENAI_MODEL": "bge-m3", "OPENAI_DIMENSIONS": "1024"},
                "two models have the same name",
            ),
        ],
    )
    def test_a_wrong_one_stops_the_start_with_a_line_that_names_it(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        variables: dict[str, str],
        told: str,
    ) -> None:
        with pytest.raises(SystemExit) as raised:
            read(monkeypatch, **variables)

        assert raised.value.code == 2
        assert told in capsys.readouterr().err
