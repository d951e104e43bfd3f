import pytest
from structlog.testing import capture_logs

from services.agent.domain.errors import ModelUnavailableError
from services.agent.domain.hooks.logging import Logging
from tests.agent.domain.hooks.scripted import hooked, scene_of
from tests.agent.turns import call, calls, says

ASKS = calls(call("a", arguments='{"what": "secret"}'), text="secret")


class TestLogging:
    async def test_each_step_is_told_without_its_content(self) -> None:
        with capture_logs() as logs:
            await hooked(scene_of(ASKS, says("secret")), Logging).work()

        assert [line["event"] for line in logs] == [
            "run begins",
            "model is asked",
            "model replied",
            "tool is called",
            "tool answered",
            "model is asked",
            "model replied",
            "run ends",
        ]
        assert all((line["run_id"], line["agent_id"]) == ("r1", "a1") for line in logs)
        assert "secret" not in repr(logs)
        assert (logs[2]["calls"], logs[2]["input_tokens"]) == (["look"], 10)

    async def test_content_is_told_where_it_is_asked_for_and_cut(self) -> None:
        config = {"content": True, "max_chars": 3}
        with capture_logs() as logs:
            await hooked(scene_of(ASKS, says("secret")), Logging, logging=config).work()

        assert [line.get("text") for line in logs] == [
            "",
            "Whe",
            "sec",
            '{"w',
            "fou",
            "fou",
            "sec",
            "sec",
        ]

    @pytest.mark.parametrize("content", [True, False])
    async def test_failures_are_told(self, content: bool) -> None:
        scene = scene_of(ModelUnavailableError("down"))
        with capture_logs() as logs:
            await hooked(scene, Logging, logging={"content": content}).work()

        [failure] = [line for line in logs if line["event"] == "run fails"]
        assert failure["reason"] == "MODEL_UNAVAILABLE"
        assert ("text" in failure) == content
