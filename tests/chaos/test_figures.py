"""Figures tell when a campaign proved nothing, or cost too much."""

from dataclasses import fields, replace

import pytest

from tests.chaos.figures import Figures, costly, slowest_resume, table, vacuous, wasted

RICH = replace(
    Figures(**{each.name: 100 for each in fields(Figures)}), wasted_calls=5, slowest_resume=1.9
)


class TestVacuous:
    def test_enough_happened(self) -> None:
        assert list(vacuous(RICH, {"kills": 100, "tool_calls": 50})) == []

    def test_too_little_happened(self) -> None:
        [found] = vacuous(RICH, {"kills": 101})

        assert found.told == "kills is 100 and should be 101 at least"

    def test_hardly_anything_worked(self) -> None:
        assert [found.invariant for found in vacuous(replace(RICH, probes_ok=94), {})] == [
            "vacuous"
        ]


class TestCostly:
    def test_it_was_cheap(self) -> None:
        assert list(costly(RICH)) == []

    @pytest.mark.parametrize(
        "figures", [replace(RICH, wasted_calls=6), replace(RICH, slowest_resume=2.1)]
    )
    def test_it_was_not(self, figures: Figures) -> None:
        assert len(list(costly(figures))) == 1


def test_only_repeats_are_wasted() -> None:
    assert wasted({("a", 0): 1, ("a", 1): 3, ("b", 0): 2}) == 3


def test_the_slowest_resume_counts() -> None:
    assert slowest_resume([10.0, 20.0, 99.0], [9.0, 10.5, 11.0, 21.5]) == 1.5


def test_every_figure_is_shown() -> None:
    assert len(table(RICH).splitlines()) == len(fields(Figures)) + 2
