import pytest
from pydantic import Field

from services.agent.domain.errors import UnknownHookError
from services.agent.domain.hooks.hook import Hook, HookConfig, HookRun
from services.agent.domain.hooks.registry import Hooks
from services.agent.domain.models import HookSetting
from services.common.errors import InvalidArgumentError
from tests.agent.domain.hooks.scripted import Log, scripted_hook


class CountConfig(HookConfig):
    most: int = Field(default=3, ge=1)


class Count(Hook[CountConfig]):
    """Counts,
    up to a number."""

    name = "count"
    config_type = CountConfig
    priority = 7

    async def before_agent(self, run: HookRun) -> None:
        """Count."""


class TestHooks:
    def test_a_hook_is_told_with_its_positions_and_schema(self) -> None:
        [info] = Hooks([Count]).list()

        assert (info.name, info.description, info.priority) == (
            "count",
            "Counts, up to a number.",
            7,
        )
        assert info.positions == ("before_agent",)
        assert info.config_schema["properties"] == {
            "most": {"default": 3, "minimum": 1, "title": "Most", "type": "integer"}
        }

    @pytest.mark.parametrize("name", ["", "has space", "x" * 65, "é"])
    def test_a_malformed_name_is_refused(self, name: str) -> None:
        with pytest.raises(ValueError, match="malformed"):
            Hooks([scripted_hook(name, Log())])

    def test_a_name_that_comes_twice_is_refused(self) -> None:
        with pytest.raises(ValueError, match="'count' is malformed or comes twice"):
            Hooks([Count, Count])


class TestChosen:
    def test_whole_numbers_may_come_as_doubles(self) -> None:
        [hook] = Hooks([Count]).chosen([HookSetting("count", config={"most": 5.0})]).hooks

        assert hook.config == CountConfig(most=5)

    def test_each_has_its_own_state(self) -> None:
        hooks = Hooks([Count])

        assert (
            hooks.chosen([HookSetting("count")]).hooks != hooks.chosen([HookSetting("count")]).hooks
        )

    @pytest.mark.parametrize(
        ("config", "fields"),
        [
            ({"most": 0}, ["agent.hooks[0].config.most"]),
            (
                {"most": 1.5, "least": 1},
                ["agent.hooks[0].config.most", "agent.hooks[0].config.least"],
            ),
        ],
    )
    def test_every_wrong_field_is_named(self, config: dict[str, float], fields: list[str]) -> None:
        with pytest.raises(InvalidArgumentError) as refused:
            Hooks([Count]).chosen([HookSetting("count", config=config)])

        assert [each.field for each in refused.value.violations] == fields

    def test_one_that_is_not_there_is_named(self) -> None:
        with pytest.raises(UnknownHookError) as refused:
            Hooks([Count]).chosen([HookSetting("count"), HookSetting("mount")])

        assert refused.value.metadata == {"hook": "mount", "known": "count"}

    def test_one_that_comes_twice_is_named(self) -> None:
        with pytest.raises(InvalidArgumentError) as refused:
            Hooks([Count]).chosen([HookSetting("count"), HookSetting("count")])

        assert [each.field for each in refused.value.violations] == ["agent.hooks[1].name"]
