import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.agent.clients.extensions import HookKind, load_hooks
from services.agent.domain.run_models import StopReason
from tests.agent.domain.hooks.scripted import hooked, scene_of
from tests.agent.turns import call, calls, says

PAGE = Path(__file__).parents[4] / "docs/hooks.md"


@pytest.fixture
def documented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HookKind]:
    """The hook of the documentation, from a module that holds it as it is written there."""
    [source] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "documented_hooks.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    [kind] = load_hooks("documented_hooks")
    yield kind
    del sys.modules["documented_hooks"]


class TestDocumented:
    async def test_a_shorter_answer_is_asked_for(self, documented: HookKind) -> None:
        scene = hooked(
            scene_of(says("far too many words"), says("few words")),
            documented,
            short_answers={"max_words": 2},
        )

        await scene.work()

        assert scene.journal.last.text == "few words"
        assert scene.model.requests[1].messages[-1].text == "These are 4 words; use at most 2."

    async def test_in_the_end_it_gives_up(self, documented: HookKind) -> None:
        scene = hooked(
            scene_of(otherwise=lambda _: says("far too many words")),
            documented,
            short_answers={"max_words": 2, "tries": 1},
        )

        ending = await scene.work()

        assert ending.stop_reason is StopReason.HOOK
        assert scene.journal.last.text == "I could not put it briefly."
        assert scene.journal.last.metadata == {"hook": "short_answers"}

    async def test_a_tool_is_refused(self, documented: HookKind) -> None:
        scene = hooked(
            scene_of(calls(call("a")), says("Done.")), documented, short_answers={"no_tool": "look"}
        )

        await scene.work()

        assert scene.journal.messages[2].metadata == {"error": "refused"}
