from pathlib import Path

import pytest

from services.agent.clients.model_access import ModelsFileError
from services.agent.clients.models_file import (
    OPENAI_MODEL,
    OPENAI_URL,
    EndpointSettings,
    ModelSettings,
    load_models,
)
from services.agent.domain.chat import ToolProtocol
from services.agent.domain.prices import Prices

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


POOL = """
[models.alone]
max_concurrent = 3

[models.pool]
[[models.pool.endpoints]]
weight = 3
max_concurrent = 16
[[models.pool.endpoints]]
priority = 0
[[models.pool.endpoints]]
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
                    EndpointSettings("http://10.0.0.6:8000/v1", "local", "", priority=1),
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
                "belongs into its endpoints",
            ),
            (
                "[models.a]\n[[models.a.endpoints]]\nkey = 1",
                "endpoints.0.key: unknown key",
            ),
            ("[models.a]\n" + "[[models.a.endpoints]]\n" * 17, "models.a.endpoints: "),
            ("[models.a]\nmax_concurrent = 0", "models.a.max_concurrent: "),
            (
                '[models.a.prices]\ncurrency = "EUR"\ninput = -1\noutput = 1',
                "models.a.prices.input: ",
            ),
            (
                '[models.a.prices]\ncurrency = "euro"\ninput = 1\noutput = 1',
                "models.a.prices.currency: ",
            ),
            (
                '[models.a.prices]\ncurrency = "EUR"\ninput = nan\noutput = 1',
                "models.a.prices.input: ",
            ),
            ("[models.a.prices]\ninput = 1\noutput = 1", "models.a.prices.currency: "),
            (
                "\n".join(
                    f'[models.{name}.prices]\ncurrency = "{currency}"\ninput = 1\noutput = 1'
                    for name, currency in (("a", "EUR"), ("b", "USD"))
                ),
                "prices are in two currencies: EUR, USD",
            ),
            (
                '[models.a.prices]\ncurrency = "EUR"\ninput = 0.0000000001\noutput = 1',
                "models.a.prices.input: ",
            ),
            ("[models.a]\nweight = 1", "models.a.weight: unknown key"),
            (
                "[models.a]\nmax_concurrent = 1\n[[models.a.endpoints]]",
                "models.a: max_concurrent belongs into its endpoints",
            ),
            (
                "[models.a]\n[[models.a.endpoints]]\nweight = 0",
                "models.a.endpoints.0.weight: ",
            ),
            (
                "[models.a]\n[[models.a.endpoints]]\npriority = 101",
                "models.a.endpoints.0.priority: ",
            ),
            (
                "[models.a]\n[[models.a.endpoints]]\nweight = 2\n[[models.a.endpoints]]",
                "models.a: weight shares calls among endpoints of the same priority",
            ),
            ('[models." "]', "models."),
        ],
    )
    def test_what_is_wrong_is_named(self, path: Path, text: str, told: str) -> None:
        path.write_text(text)

        with pytest.raises(ModelsFileError) as error:
            load_models(path, {})

        assert told in str(error.value)
        assert "\n" not in str(error.value)

    @pytest.mark.parametrize(
        ("cached", "nanos"), [("cached_input = 0.07", 70_000_000), ("", 270_000_000)]
    )
    def test_prices_are_read_exactly(self, path: Path, cached: str, nanos: int) -> None:
        path.write_text(
            f'[models.a.prices]\ncurrency = "USD"\ninput = 0.27\noutput = 1.1\n{cached}'
        )

        assert load_models(path, {})[0].prices == Prices("USD", 270_000_000, nanos, 1_100_000_000)

    def test_rules_of_endpoints_are_read(self, path: Path) -> None:
        path.write_text(POOL)

        alone, pool = load_models(path, {})

        assert [each.max_concurrent for each in alone.endpoints] == [3]
        rules = [(each.priority, each.weight, each.max_concurrent) for each in pool.endpoints]
        assert rules == [(0, 3, 16), (0, 1, None), (2, 1, None)]

    def test_a_file_that_is_not_there_is_named(self, path: Path) -> None:
        with pytest.raises(ModelsFileError, match=r"models\.toml: cannot be read"):
            load_models(path, {})


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

    def test_an_endpoint_is_reached_as_the_environment_says(self) -> None:
        environ = {
            "OPENAI_API_KEY": "k",
            "OPENAI_ORG_ID": "org-1",
            "all_proxy": "http://u:hunter2@p:1",
        }

        (model,) = load_models(None, environ)

        (endpoint,) = model.endpoints
        assert endpoint.headers == {"openai-organization": "org-1"}
        assert endpoint.proxy == "http://u:hunter2@p:1"
        assert "hunter2" not in repr(endpoint)
