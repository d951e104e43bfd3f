from datetime import timedelta

import pytest

from services.agent.domain.models import (
    AgentSettings,
    KnowledgeBaseId,
    ModelOptions,
    Retrieval,
    RunLimits,
    Visibility,
    Window,
    WindowStrategy,
)
from services.agent.domain.patch import patched, paths

OLD = AgentSettings("Old")
NEW = AgentSettings(
    display_name="New",
    description="knows",
    system_prompt="Answer.",
    model="large",
    options=ModelOptions(0.5, 0.9, 100, ("END",), 7),
    tools=("look",),
    knowledge_base_ids=(KnowledgeBaseId("b"),),
    retrieval=Retrieval(7, 0.25),
    limits=RunLimits(3, 4, 5000, timedelta(seconds=9)),
    window=Window(0, 1234, WindowStrategy.COMPACTION, 0.5, 7, 300),
    visibility=Visibility.TENANT,
)


def at(settings: AgentSettings, path: str) -> object:
    value: object = settings
    for name in path.split("."):
        value = getattr(value, name)
    return value


class TestPatched:
    @pytest.mark.parametrize("path", sorted(paths()))
    def test_a_path_changes_its_field_and_no_other(self, path: str) -> None:
        changed = patched(OLD, NEW, [path])

        assert at(NEW, path) == at(changed, path)
        for other in paths():
            if not (other + ".").startswith(path + ".") and not path.startswith(other + "."):
                assert at(OLD, other) == at(changed, other)

    def test_all_paths_together_change_all(self) -> None:
        assert patched(OLD, NEW, paths()) == NEW

    def test_no_path_changes_nothing(self) -> None:
        assert patched(OLD, NEW, []) == OLD


class TestPaths:
    def test_fields_and_their_fields_are_paths(self) -> None:
        assert {"display_name", "options", "options.seed", "limits.max_duration"} <= paths()
        assert "owner_user_id" not in paths()
