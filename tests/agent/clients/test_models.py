from dataclasses import replace

from services.agent.clients.models import open_models
from services.agent.clients.models_file import EndpointSettings, ModelSettings
from services.agent.domain.chat import (
    ChatMessage,
    EndpointInfo,
    EndpointState,
    ModelInfo,
    ModelRequest,
    Provider,
    ToolProtocol,
)
from services.agent.domain.messages import Role
from services.agent.domain.models import ModelOptions
from tests.agent.scripted_model import says, scripted_model

QUESTION = ModelRequest(
    (ChatMessage(Role.USER, "Hello?"),), options=ModelOptions(max_output_tokens=9)
)


SERVER = EndpointInfo(1, 0, 1, 0, EndpointState.HEALTHY, calls=0)


def settings(name: str, url: str = "http://127.0.0.1:1/v1") -> ModelSettings:
    return ModelSettings(name, (EndpointSettings(url, f"{name}-1", ""),), context_tokens=100)


class TestModels:
    async def test_alone_the_built_in_model_is_the_default(self) -> None:
        async with open_models([]) as models:
            default = models.get("")

            assert default is models.get("offline")
            assert models.list() == [
                ModelInfo("offline", "offline", Provider.OFFLINE, default=True)
            ]

    async def test_the_first_that_is_configured_is_the_default(self) -> None:
        async with open_models([settings("z"), settings("a")]) as models:
            default = models.get("")

            assert default is models.get("z")
            assert models.list() == [
                ModelInfo("a", "a-1", Provider.OPENAI, 100, endpoints=(SERVER,)),
                ModelInfo("offline", "offline", Provider.OFFLINE),
                ModelInfo("z", "z-1", Provider.OPENAI, 100, default=True, endpoints=(SERVER,)),
            ]

    async def test_how_a_model_asks_for_tools_is_told(self) -> None:
        tags = replace(settings("a"), tool_protocol=ToolProtocol.TAGS)

        async with open_models([tags]) as models:
            told = models.list()[0]

        assert told.tool_protocol is ToolProtocol.TAGS
        assert 100 < told.tools_tokens < 400

    async def test_a_name_that_is_not_there_gives_none(self) -> None:
        async with open_models([settings("a")]) as models:
            assert models.get("b") is None

    async def test_a_server_is_sent_what_is_configured_for_it(self) -> None:
        async with scripted_model() as server:
            endpoint = EndpointSettings(server.base_url + "/", "m", "k", {"openai-project": "p"})
            async with open_models([ModelSettings("a", (endpoint,))]) as models:
                server.script(says("Hi."))
                model = models.get("")
                assert model is not None

                await model.complete(QUESTION)

        (request,) = server.requests
        assert request.path == "/v1/chat/completions"
        assert request.headers["authorization"] == "Bearer k"
        assert request.headers["openai-project"] == "p"
        assert request.json["max_tokens"] == 9

    async def test_a_server_without_a_key_is_sent_none(self) -> None:
        async with scripted_model() as server, open_models([settings("a", server.base_url)]) as own:
            server.script(says("Hi."))
            model = own.get("")
            assert model is not None

            await model.complete(QUESTION)

        assert "authorization" not in server.requests[0].headers

    async def test_a_proxy_is_asked_instead(self) -> None:
        endpoint = "http://model.example/v1"
        async with scripted_model() as proxy:
            given = EndpointSettings(endpoint, "m", "", proxy=proxy.base_url)
            async with open_models([ModelSettings("a", (given,))]) as models:
                proxy.script(says("Hi."))
                model = models.get("")
                assert model is not None

                await model.complete(QUESTION)

        assert proxy.requests[0].path == f"{endpoint}/chat/completions"
