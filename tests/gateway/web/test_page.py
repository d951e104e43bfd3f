"""The status page as HTML."""

from datetime import UTC, datetime, timedelta

import pytest

from services.gateway.domain.status import Status
from services.gateway.web.page import status_page

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)


def page(*, after: timedelta = timedelta(0), draining: bool = False, **components: bool) -> str:
    """The page some time after the start."""
    status = Status(components, draining, NOON, {"streams": 7})
    return status_page(status, version="1.2.3", now=NOON + after)


class TestStatusPage:
    def test_what_is_not_well_is_shown(self) -> None:
        shown = page(agent=True, knowledge=False)

        assert '<p class="bad">not ready</p>' in shown
        assert '<th scope="row">agent</th><td class="good">serving</td>' in shown
        assert '<th scope="row">knowledge</th><td class="bad">not serving</td>' in shown

    def test_a_gateway_about_to_stop_says_so(self) -> None:
        assert "shutting down" in page(draining=True)

    def test_facts_are_listed(self) -> None:
        shown = page()

        assert "<dt>version</dt><dd>1.2.3</dd>" in shown
        assert "<dt>started</dt><dd>2026-01-02 12:00:00 UTC</dd>" in shown
        assert "<dt>open streams</dt><dd>7</dd>" in shown

    def test_names_are_escaped(self) -> None:
        odd = Status({"<b>": True}, False, NOON, {})

        assert "<b>" not in status_page(odd, version="1.2.3", now=NOON)

    @pytest.mark.parametrize(
        ("after", "told"),
        [
            (timedelta(seconds=59), "0 min"),
            (timedelta(minutes=59), "59 min"),
            (timedelta(hours=1, minutes=5), "1 h 5 min"),
            (timedelta(hours=47, minutes=59), "47 h 59 min"),
            (timedelta(hours=49), "2 days"),
        ],
    )
    def test_the_time_up_is_told(self, after: timedelta, told: str) -> None:
        assert f"<dt>up for</dt><dd>{told}</dd>" in page(after=after)
