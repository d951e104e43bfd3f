import math
from fractions import Fraction

import pytest

from services.agent.domain.tools.arithmetic import (
    CONSTANTS,
    FUNCTIONS,
    MAX_DIGITS,
    ArithmeticRefusedError,
    bounded,
    number,
    power,
    shown,
)

HUGE = Fraction(10) ** (MAX_DIGITS - 1)


class TestNumber:
    @pytest.mark.parametrize("text", ["0.1", "12345678901234567890.123456789", "2.5e3", "1e-900"])
    def test_every_digit_counts(self, text: str) -> None:
        assert number(text) == Fraction(text)

    @pytest.mark.parametrize("text", ["1e1001", "1e999999999", "1e-999999999"])
    def test_one_out_of_bounds_is_refused_without_being_written_out(self, text: str) -> None:
        with pytest.raises(ArithmeticRefusedError, match="at most 1000 digits"):
            number(text)


class TestBounded:
    def test_what_is_short_stays_exact(self) -> None:
        assert bounded(Fraction(1, 3)) == Fraction(1, 3)

    def test_a_fraction_that_has_grown_too_long_is_rounded(self) -> None:
        long = Fraction(7919**1000 + 1, 7919**1000)

        assert bounded(long) != long
        assert shown(bounded(long)) == "1"

    @pytest.mark.parametrize("sign", [1, -1])
    def test_what_is_too_large_or_too_small_is_refused(self, sign: int) -> None:
        with pytest.raises(ArithmeticRefusedError, match="more than 1000 digits"):
            bounded(sign * HUGE * HUGE)
        with pytest.raises(ArithmeticRefusedError, match=r"smaller than 10\*\*-1000"):
            bounded(sign / HUGE / HUGE)


class TestPower:
    @pytest.mark.parametrize(
        ("base", "exponent", "value"),
        [
            (2, -3, Fraction(1, 8)),
            (0, 0, 1),
            (0, 5, 0),
            (-1, 10**900 + 1, -1),
            (1, 10**900, 1),
            (Fraction(1, 4), Fraction(1, 2), Fraction(1, 2)),
            (8, Fraction(1, 3), 2),
        ],
    )
    def test_it_is_exact_where_it_can_be(
        self, base: Fraction, exponent: Fraction, value: Fraction
    ) -> None:
        assert power(Fraction(base), Fraction(exponent)) == value

    def test_daily_interest_over_ten_years_is_close(self) -> None:
        value = power(Fraction("1.0004"), Fraction(3650))

        assert float(value) == pytest.approx(1.0004**3650)

    def test_a_base_next_to_one_is_not_taken_for_one(self) -> None:
        tiny = 1 / HUGE

        assert shown(power(1 + tiny, HUGE)) == shown(CONSTANTS["e"])
        assert shown(FUNCTIONS["log"][0](1 + 2 * tiny, 1 + tiny)) == "2"

    @pytest.mark.parametrize(
        ("base", "exponent", "told"),
        [
            (9, 9**9, "more than 1000 digits"),
            (9, -(9**9), "more than 1000 digits"),
            (0, -1, "division by zero"),
            (-8, Fraction(1, 3), "no real number"),
        ],
    )
    def test_what_has_no_value_is_refused(
        self, base: int, exponent: Fraction | int, told: str
    ) -> None:
        with pytest.raises(ArithmeticRefusedError, match=told):
            power(Fraction(base), Fraction(exponent))


class TestFunctions:
    @pytest.mark.parametrize("name", ["sin", "cos", "tan", "exp", "ceil", "floor", "abs"])
    @pytest.mark.parametrize("at", ["-3.7", "-0.5", "0", "0.001", "1", "2", "100"])
    def test_they_agree_with_floating_point(self, name: str, at: str) -> None:
        function = {"abs": abs}.get(name) or getattr(math, name)

        value = FUNCTIONS[name][0](Fraction(at))

        assert float(value) == pytest.approx(function(float(at)), rel=1e-12, abs=1e-14)

    @pytest.mark.parametrize("at", ["0.001", "0.5", "1", "2", "1e300"])
    def test_roots_and_logarithms_agree_with_floating_point(self, at: str) -> None:
        for name in ("sqrt", "log"):
            value = FUNCTIONS[name][0](Fraction(at))

            assert float(value) == pytest.approx(getattr(math, name)(float(at)), rel=1e-14)

    @pytest.mark.parametrize(
        ("arguments", "value"),
        [(("2.5",), "3"), (("-2.5",), "-3"), (("2.675", "2"), "2.68"), (("1250", "-2"), "1300")],
    )
    def test_halves_are_rounded_away_from_zero(
        self, arguments: tuple[str, ...], value: str
    ) -> None:
        assert FUNCTIONS["round"][0](*map(Fraction, arguments)) == Fraction(value)

    @pytest.mark.parametrize(
        ("name", "arguments", "told"),
        [
            ("sqrt", ("-1",), "no real number"),
            ("log", ("0",), "above 0"),
            ("log", ("8", "1"), "no base 1"),
            ("exp", ("1e9",), "more than 1000 digits"),
            ("sin", ("1e30",), "at most"),
            ("round", ("1", "0.5"), "whole number of places"),
        ],
    )
    def test_what_has_no_value_is_refused(
        self, name: str, arguments: tuple[str, ...], told: str
    ) -> None:
        with pytest.raises(ArithmeticRefusedError, match=told):
            FUNCTIONS[name][0](*map(Fraction, arguments))

    def test_the_tangent_of_a_right_angle_has_none(self) -> None:
        with pytest.raises(ArithmeticRefusedError, match="no value at this angle"):
            FUNCTIONS["tan"][0](CONSTANTS["pi"] / 2)


class TestShown:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (Fraction(2**200), str(2**200)),
            (Fraction(-1, 3), "-0.3333333333333333333333333333"),
            (Fraction(2, 3), "0.6666666666666666666666666667"),
            (Fraction("123456789012345678901234567890.5"), "123456789012345678901234567890.5"),
            (Fraction("0.000001"), "0.000001"),
            (Fraction("1e-300"), "1E-300"),
            (1 - Fraction(1, 10**40), "1"),
        ],
    )
    def test_it_is_written_as_people_do(self, value: Fraction, text: str) -> None:
        assert shown(value) == text
