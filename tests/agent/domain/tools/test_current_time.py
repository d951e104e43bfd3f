from dataclasses import replace
from datetime import UTC, datetime

import pytest

from services.agent.domain.tools.current_time import current_time_tool
from services.agent.domain.tools.errors import RetryToolError
from services.common.text import Json
from tests.agent.domain.tools.contexts import CONTEXT

TOOL = current_time_tool(lambda: datetime(2026, 6, 1, 22, 30, 5, tzinfo=UTC))


class TestCurrentTime:
    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            ({}, "2026-06-01T22:30:05+00:00 (Monday)"),
            ({"timezone": "Asia/Shanghai"}, "2026-06-02T06:30:05+08:00 (Tuesday)"),
            ({"timezone": ""}, "2026-06-01T22:30:05+00:00 (Monday)"),
        ],
    )
    async def test_it_tells_the_time_of_a_zone(self, arguments: dict[str, Json], text: str) -> None:
        assert (await TOOL.run(arguments, CONTEXT)).text == text

    async def test_it_is_the_user_s_zone_if_none_is_named(self) -> None:
        context = replace(CONTEXT, time_zone="America/New_York")

        assert (await TOOL.run({}, context)).text == "2026-06-01T18:30:05-04:00 (Monday)"
        assert "UTC" not in TOOL.spec.description

    @pytest.mark.parametrize(
        "zone", ["Nowhere/At_all", "../../etc/passwd", "/etc/passwd", "America"]
    )
    async def test_what_is_no_zone_is_refused(self, zone: str) -> None:
        with pytest.raises(RetryToolError, match="IANA"):
            await TOOL.run({"timezone": zone}, CONTEXT)

    @pytest.mark.parametrize(
        ("zone", "near"),
        [
            ("asia/shanghai", "; perhaps Asia/Shanghai$"),
            ("Berlin", "; perhaps Europe/Berlin$"),
            ("new york", "; perhaps America/New_York$"),
            ("America/NewYork", "; perhaps America/New_York"),
            ("GMT+8", 'such as "Asia/Shanghai"$'),
            ("x" * 10_000, 'such as "Asia/Shanghai"$'),
        ],
    )
    async def test_names_like_a_wrong_one_are_told(self, zone: str, near: str) -> None:
        with pytest.raises(RetryToolError, match=near):
            await TOOL.run({"timezone": zone}, CONTEXT)

    def test_its_description_gives_an_example(self) -> None:
        assert "Example:" in TOOL.spec.description
        assert TOOL.spec.idempotent
