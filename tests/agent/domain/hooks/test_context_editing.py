from typing import Any

from services.agent.domain.chat import ModelRequest, ToolResult
from services.agent.domain.hooks.context_editing import CLEARED, ContextEditing
from services.agent.domain.messages import Role
from tests.agent.domain.hooks.scripted import hooked
from tests.agent.turns import PlainTool, Scene, ScriptedModel, call, calls, says


def results(request: ModelRequest) -> list[str]:
    return [message.text for message in request.messages if message.role is Role.TOOL]


def looking(rounds: int, **config: Any) -> Scene[ScriptedModel]:
    """A run that looks a few times, with results of 100 tokens each."""
    asks = [
        calls(call(f"c{number}", arguments=f'{{"what": "{number}"}}')) for number in range(rounds)
    ]
    tool = PlainTool(gives=lambda arguments: ToolResult(f"{arguments['what']}" * 400))
    scene = Scene(ScriptedModel(*asks, says("Done.")), [tool])
    return hooked(scene, ContextEditing, context_editing=config)


class TestContextEditing:
    async def test_old_results_are_cleared_once_the_context_is_long(self) -> None:
        scene = looking(4, trigger_tokens=300, keep=1)

        await scene.work()

        assert [results(request) for request in scene.model.requests] == [
            [],
            ["0" * 400],
            ["0" * 400, "1" * 400],
            [CLEARED, CLEARED, "2" * 400],
            [CLEARED, CLEARED, CLEARED, "3" * 400],
        ]

    async def test_what_is_stored_stays(self) -> None:
        scene = looking(4, trigger_tokens=0, keep=0)

        await scene.work()

        assert results(scene.model.requests[-1]) == [CLEARED] * 4
        assert CLEARED not in scene.journal.texts

    async def test_every_call_keeps_its_result(self) -> None:
        scene = looking(3, trigger_tokens=0, keep=0)

        await scene.work()

        messages = scene.model.requests[-1].messages
        asked = [each.id for message in messages for each in message.tool_calls]
        assert asked == [each.tool_call_id for each in messages if each.role is Role.TOOL]

    async def test_results_of_some_tools_stay(self) -> None:
        scene = looking(3, trigger_tokens=0, keep=0, keep_tools=["look"])

        await scene.work()

        assert CLEARED not in results(scene.model.requests[-1])
