from pathlib import Path

import pytest

from services.agent.clients.models_file import (
    OPENAI_MODEL,
    OPENAI_URL,
    EndpointSettings,
    ModelSettings,
    ModelsFileError,
    load_models,
    proxy_of,
)
from services.agent.domain.chat import ToolProtocol

DEEPSEEK = """
[models.deepseek-chat]
model = "deepseek-v4"
base_url = "https://api.deepseek.example/v1"
api_key_env = "DEEPSEEK_API_KEY"
context_tokens = 65536
tool_protocol = "native"
send_reasoning = true
stream = true

[models.local]
tool_protocol = "tags"
[[models.local.endpoints]]
base_url = "http://10.0.0.5:8000/v1"
model = "qwen"
[[models.local.endpoints]]
base_url = "http://10.0.0.6:8000/v1"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "models.toml"


class TestFile:
    def test_models_come_in_the_order_of_the_file(self, path: Path) -> None:
        path.write_text(DEEPSEEK)

        models = load_models(path, {"DEEPSEEK_API_KEY": "k", "OPENAI_API_KEY": "unused"})

        assert models == (
            ModelSettings(
                "deepseek-chat",
                (EndpointSettings("https://api.deepseek.example/v1", "deepseek-v4", "k"),),
                context_tokens=65536,
                send_reasoning=True,
                stream=True,
            ),
            ModelSettings(
                "local",
                (
                    EndpointSettings("http://10.0.0.5:8000/v1", "qwen", ""),
                    EndpointSettings("http://10.0.0.6:8000/v1", "local", ""),
                ),
                tool_protocol=ToolProtocol.TAGS,
            ),
        )

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("=", "is no TOML"),
            ("", "models: Field required"),
            ("[models]", "models: "),
            ("[models.a]\ncontext_token = 1", "models.a.context_token: unknown key"),
            ("timeout = 1\n[models.a]", "timeout: unknown key"),
            ("[models.a]\ncontext_tokens = -1", "models.a.context_tokens: "),
            ('[models.a]\nbase_url = "api.example"', "models.a.base_url: "),
            ('[models.a]\napi_key_env = "A KEY"', "models.a.api_key_env: "),
            (
                '[models.a]\napi_key_env = "ABSENT"',
                "variable ABSENT, named by",
            ),
            (
                '[models.a]\ntool_protocol = "xml"',
                'models.a.tool_protocol: must be "native" or "tags"',
            ),
            (
                "[models.a]\ntool_protocol = true",
                'models.a.tool_protocol: must be "native" or "tags"',
            ),
            ("[models.offline]", "models.offline: the built-in model"),
            (
                '[models.a]\nbase_url = "http://x"\n[[models.a.endpoints]]\nbase_url = "http://y"',
                "belong into its endpoints",
            ),
            (
                "[models.a]\n[[models.a.endpoints]]\nkey = 1",
                "endpoints.0.key: unknown key",
            ),
            ("[models.a]\n" + "[[models.a.endpoints]]\n" * 5, "models.a.endpoints: "),
            ('[models." "]', "models."),
        ],
    )
    def test_what_is_wrong_is_named(self, path: Path, text: str, told: str) -> None:
        path.write_text(text)

        with pytest.raises(ModelsFileError) as error:
            load_models(path, {})

        assert told in str(error.value)
        assert "\n" not in str(error.value)

    def test_a_file_that_is_not_there_is_named(self, path: Path) -> None:
        with pytest.raises(ModelsFileError, match=r"models\.toml: cannot be read"):
            load_models(path, {})


ACCOUNT = {"OPENAI_ORG_ID": "org-1", "OPENAI_PROJECT_ID": "proj-1"}


class TestHeaders:
    def test_openai_itself_is_told_of_the_account(self) -> None:
        (model,) = load_models(None, {"OPENAI_API_KEY": "k", **ACCOUNT})

        told = {"openai-organization": "org-1", "openai-project": "proj-1"}
        assert model.endpoints[0].headers == told

    def test_other_servers_are_not(self) -> None:
        environ = {"OPENAI_BASE_URL": "http://api.openai.com.example/v1", **ACCOUNT}

        assert load_models(None, environ)[0].endpoints[0].headers == {}

    @pytest.mark.parametrize("key", ["two\nlines", "k\0", "clé"])
    def test_a_key_that_no_header_can_hold_is_refused_and_not_told(self, key: str) -> None:
        with pytest.raises(ModelsFileError, match=r"^OPENAI_API_KEY: ") as error:
            load_models(None, {"OPENAI_API_KEY": key})

        assert key not in str(error.value)

    def test_blanks_around_a_key_are_no_part_of_it(self) -> None:
        assert load_models(None, {"OPENAI_API_KEY": " k\n"})[0].endpoints[0].api_key == "k"

    def test_no_secret_is_in_the_words_for_settings(self) -> None:
        environ = {"OPENAI_API_KEY": "hunter2", "all_proxy": "http://u:hunter2@p:1"}

        assert "hunter2" not in repr(load_models(None, environ))


class TestProxy:
    @pytest.mark.parametrize(
        ("environ", "proxy"),
        [
            ({}, None),
            ({"https_proxy": "http://p:1"}, "http://p:1"),
            ({"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
            ({"https_proxy": "http://p:1", "HTTPS_PROXY": "http://q:1"}, "http://p:1"),
            ({"https_proxy": "p:1"}, "http://p:1"),
            ({"http_proxy": "http://p:1"}, None),
            ({"all_proxy": "http://p:1"}, "http://p:1"),
            ({"https_proxy": "http://p:1", "no_proxy": "*"}, None),
            ({"https_proxy": "http://p:1", "no_proxy": "x, model.example"}, None),
            ({"https_proxy": "http://p:1", "NO_PROXY": ".EXAMPLE:443"}, None),
            ({"https_proxy": "http://p:1", "no_proxy": "odel.example,,"}, "http://p:1"),
        ],
    )
    def test_it_comes_from_the_environment(
        self, environ: dict[str, str], proxy: str | None
    ) -> None:
        assert proxy_of("https://Model.example/v1", environ) == proxy

    def test_an_endpoint_has_it(self) -> None:
        environ = {"OPENAI_BASE_URL": "http://model.example/v1", "http_proxy": "http://p:1"}

        assert load_models(None, environ)[0].endpoints[0].proxy == "http://p:1"

    def test_one_of_another_kind_is_refused_without_its_password(self) -> None:
        with pytest.raises(ModelsFileError, match="proxy") as error:
            load_models(None, {"OPENAI_API_KEY": "k", "all_proxy": "socks5://u:hunter2@p:1"})

        assert "hunter2" not in str(error.value)


class TestEnvironment:
    def test_without_anything_there_is_no_model(self) -> None:
        assert load_models(None, {"OPENAI_API_KEY": "", "OPENAI_MODEL": "x"}) == ()

    @pytest.mark.parametrize(
        ("environ", "endpoint"),
        [
            ({"OPENAI_API_KEY": "k"}, EndpointSettings(OPENAI_URL, OPENAI_MODEL, "k")),
            (
                {"OPENAI_BASE_URL": "http://127.0.0.1:8000/v1", "OPENAI_MODEL": "qwen"},
                EndpointSettings("http://127.0.0.1:8000/v1", "qwen", ""),
            ),
        ],
    )
    def test_either_variable_is_enough(
        self, environ: dict[str, str], endpoint: EndpointSettings
    ) -> None:
        assert load_models(None, environ) == (ModelSettings(endpoint.model, (endpoint,)),)

    @pytest.mark.parametrize(
        ("environ", "variable"),
        [
            ({"OPENAI_BASE_URL": "127.0.0.1:8000"}, "OPENAI_BASE_URL"),
            ({"OPENAI_API_KEY": "k", "OPENAI_MODEL": "offline"}, "OPENAI_MODEL"),
        ],
    )
    def test_a_wrong_variable_is_named(self, environ: dict[str, str], variable: str) -> None:
        with pytest.raises(ModelsFileError, match=f"^{variable}: "):
            load_models(None, environ)
