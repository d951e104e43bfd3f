from typing import Any

import pytest

from services.agent.domain.chat import ModelReply, ToolResult
from services.agent.domain.hooks.hook import End
from services.agent.domain.hooks.pii.hook import PiiMasking
from services.agent.domain.models import AgentSettings
from services.agent.domain.run_models import StopReason
from services.agent.domain.tools.execute import ToolBounds
from tests.agent.domain.hooks.scripted import Log, hooked, scene_of, scripted_hook
from tests.agent.turns import PlainTool, Scene, ScriptedModel, TurnJournal, call, calls, says

MAIL = "ann@example.com"
ASKS = calls(call("a", arguments=f'{{"what": "{MAIL}"}}'), text=f"Looking for {MAIL}.")


def masked(scene: Scene[ScriptedModel], **config: Any) -> Scene[ScriptedModel]:
    scene.journal = TurnJournal(f"I am {MAIL}.")
    return hooked(scene, PiiMasking, pii_masking=config)


def finding(text: str) -> PlainTool:
    return PlainTool(gives=lambda arguments: ToolResult(text))


class TestConversation:
    async def test_nothing_personal_reaches_the_model_or_is_stored_of_its_words(self) -> None:
        tool = finding(f"{MAIL} is known.")
        scene = masked(scene_of(ASKS, says(f"You are {MAIL}.")))
        scene.tools = [tool]
        scene.settings = AgentSettings(
            "x", system_prompt="Support is help@example.com.", hooks=scene.settings.hooks
        )

        ending = await scene.work()

        assert ending.stop_reason is StopReason.END_TURN
        assert scene.journal.texts == [
            f"I am {MAIL}.",
            "Looking for [email].",
            "[email] is known.",
            "You are [email].",
        ]
        assert scene.journal.messages[1].tool_calls[0].arguments_json == '{"what": "[email]"}'
        assert tool.ran == [{"what": "[email]"}]
        sent = scene.model.requests[1].messages
        assert sent[0].text == "Support is help@example.com."
        assert MAIL not in repr(sent[1:])

    async def test_reasoning_is_masked_too(self) -> None:
        scene = masked(scene_of(ModelReply("Yes.", reasoning=f"It is {MAIL}.")))

        await scene.work()

        assert scene.journal.last.metadata["reasoning"] == "It is [email]."

    async def test_errors_of_tools_are_masked_before_they_are_stored(self) -> None:
        wrong = call("a", arguments=f'{{"what": ["{MAIL}"]}}')
        scene = masked(scene_of(calls(wrong), says("x")), tool_arguments=False)

        await scene.work()

        assert scene.journal.messages[2].metadata["error"] == "invalid_arguments"
        assert MAIL not in scene.journal.messages[2].text

    async def test_what_is_kept_of_a_cut_result_is_masked_and_can_be_read_on(self) -> None:
        scene = masked(scene_of(calls(call("a")), says("x")))
        scene.tools = [finding(f"{MAIL} " * 100)]
        scene.bounds = ToolBounds(result_chars=400)

        await scene.work()

        result = scene.journal.messages[2]
        [whole] = scene.journal.wholes.values()
        assert whole.text == f"{'[email]':{len(MAIL)}} " * 100
        assert whole.full_chars == len(whole.text)
        assert MAIL not in result.text

    async def test_words_of_hooks_further_in_are_masked(self) -> None:
        scene = masked(scene_of())
        end = scripted_hook("end", Log(), before_model=lambda _: End(f"Ask {MAIL}."))
        scene = hooked(scene, PiiMasking, end)

        await scene.work()

        assert scene.journal.last.text == "Ask [email]."

    async def test_long_texts_are_masked_too(self) -> None:
        scene = masked(scene_of(says(f"{'x ' * 50_000}{MAIL}")))

        await scene.work()

        assert scene.journal.last.text.endswith("x [email]")


class TestConfig:
    @pytest.mark.parametrize(
        ("config", "shown"),
        [
            ({"output": False}, (MAIL, "[email]", MAIL)),
            ({"tool_results": False}, ("[email]", MAIL, "[email]")),
            ({"kinds": ["ip"]}, (MAIL, MAIL, MAIL)),
            ({"strategies": {"email": "mask"}}, ("a***@example.com",) * 3),
        ],
    )
    async def test_what_is_masked_can_be_chosen(
        self, config: dict[str, Any], shown: tuple[str, str, str]
    ) -> None:
        scene = masked(scene_of(ASKS, says(f"You are {MAIL}.")), **config)
        scene.tools = [finding(f"{MAIL} is known.")]

        await scene.work()

        asking, result, answer = shown
        assert scene.journal.texts[1:] == [
            f"Looking for {asking}.",
            f"{result} is known.",
            f"You are {answer}.",
        ]

    async def test_input_can_be_let_through(self) -> None:
        scene = masked(scene_of(says("x")), input=False)

        await scene.work()

        assert scene.model.requests[0].messages[0].text == f"I am {MAIL}."
