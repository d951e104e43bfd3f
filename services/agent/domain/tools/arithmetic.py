"""Exact arithmetic within bounds. Pure.

Numbers are fractions, so that 0.1 + 0.2 is 0.3 and 1 / 3 * 3 is 1. What has no exact value, such as
a root or a logarithm, is worked out to more digits than are ever shown; so is a fraction that would
grow without end. What any single operation costs is bounded by `MAX_DIGITS`.
"""

import math
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from fractions import Fraction
from typing import Final

MAX_DIGITS: Final = 1000
"""Digits before the point of the largest number, and places after it of the smallest."""

SHOWN_DIGITS: Final = 28
"""Places of a result that is not whole; significant digits if it is below 1."""

_MAX_BITS: Final = int(MAX_DIGITS * math.log2(10))
_MAX_ANGLE: Final = Fraction(10**20)
_MAX_LOG: Final = Decimal(MAX_DIGITS) * Decimal(10).ln()
_WORKING: Final = Context(prec=80, Emin=-99_999, Emax=99_999)
_KEPT: Final = Context(prec=50, Emin=-99_999, Emax=99_999)
_ANGLE_STEP: Final = Decimal("1e-40")
_PI: Final = Decimal(
    "3.1415926535897932384626433832795028841971693993751058209749445923078164062862089986280348253"
)
_CLOSE: Final = Fraction(1, 10**20)
_SMALLEST_PLAIN: Final = -10


class ArithmeticRefusedError(Exception):
    """Why there is no result, in words for whoever wrote the expression."""


def number(text: str) -> Fraction:
    """The number that is written, every digit of it.

    Raises:
        ArithmeticRefusedError: it is out of bounds.
    """
    written = Decimal(text)
    if written and abs(written.adjusted()) > MAX_DIGITS:
        raise ArithmeticRefusedError(f"numbers may have at most {MAX_DIGITS} digits")
    return bounded(Fraction(written))


def bounded(value: Fraction) -> Fraction:
    """The value, rounded where as a fraction it has grown too long.

    Raises:
        ArithmeticRefusedError: it is too large or too small.
    """
    numerator, denominator = abs(value.numerator).bit_length(), value.denominator.bit_length()
    if numerator - denominator > _MAX_BITS:
        raise ArithmeticRefusedError(f"the result has more than {MAX_DIGITS} digits")
    if numerator and denominator - numerator > _MAX_BITS:
        raise ArithmeticRefusedError(f"the result is smaller than 10**-{MAX_DIGITS}")
    return _kept(_decimal(value)) if denominator > _MAX_BITS else value


def divide(left: Fraction, right: Fraction) -> Fraction:
    """Left over right."""
    return left / _divisor(right)


def divide_floor(left: Fraction, right: Fraction) -> Fraction:
    """The largest whole number not above left over right."""
    return Fraction(left // _divisor(right))


def remainder(left: Fraction, right: Fraction) -> Fraction:
    """What is left of such a division; it has the sign of right."""
    return left % _divisor(right)


def power(base: Fraction, exponent: Fraction) -> Fraction:
    """The base raised to the exponent; exact where that is short enough to be written out.

    Raises:
        ArithmeticRefusedError: it is no real number, or out of bounds; told without working it out.
    """
    if base == 0:
        if exponent < 0:
            raise ArithmeticRefusedError("division by zero: 0 to a negative power")
        return Fraction(int(exponent == 0))
    if base < 0 and exponent.denominator != 1:
        raise ArithmeticRefusedError("a negative number to a fractional power is no real number")
    size = _WORKING.multiply(_natural(abs(base)), _decimal(exponent))
    if abs(size) > _MAX_LOG:
        raise ArithmeticRefusedError(f"the power has more than {MAX_DIGITS} digits")
    bits = max(abs(base.numerator).bit_length(), base.denominator.bit_length())
    if exponent.denominator == 1 and bits * abs(exponent) <= 2 * _MAX_BITS:
        return base**exponent.numerator
    if exponent == Fraction(1, 2):
        return square_root(base)
    sign = -1 if base < 0 and exponent.numerator % 2 else 1
    return sign * _kept(_WORKING.exp(size))


def square_root(value: Fraction) -> Fraction:
    """The square root, exact if it is a fraction."""
    if value < 0:
        raise ArithmeticRefusedError("the square root of a negative number is no real number")
    exact = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
    return exact if exact * exact == value else _kept(_WORKING.sqrt(_decimal(value)))


def rounded(value: Fraction, places: Fraction = Fraction(0)) -> Fraction:
    """The value to so many decimal places; halves go away from zero."""
    if places.denominator != 1 or abs(places) > MAX_DIGITS:
        raise ArithmeticRefusedError(f"round takes a whole number of places, up to {MAX_DIGITS}")
    unit = Fraction(10) ** places.numerator
    size = math.floor(abs(value) * unit + Fraction(1, 2)) / unit
    return -size if value < 0 else size


def logarithm(value: Fraction, base: Fraction | None = None) -> Fraction:
    """The logarithm, natural if there is no base."""
    if value <= 0 or (base is not None and (base <= 0 or base == 1)):
        raise ArithmeticRefusedError("log takes numbers above 0, and no base 1")
    natural = _natural(value)
    return _kept(natural if base is None else _WORKING.divide(natural, _natural(base)))


def exponential(value: Fraction) -> Fraction:
    """E to the power of the value."""
    exponent = _decimal(value)
    if abs(exponent) > _MAX_LOG:
        raise ArithmeticRefusedError(f"the power has more than {MAX_DIGITS} digits")
    return _kept(_WORKING.exp(exponent))


def sine(angle: Fraction) -> Fraction:
    """The sine of an angle in radians."""
    if abs(angle) > _MAX_ANGLE:
        raise ArithmeticRefusedError("angles may be at most 10**20")
    with localcontext(_WORKING):
        reduced = _decimal(angle) % (2 * _PI)
        total, term, n = Decimal(0), reduced, 1
        while abs(term) > Decimal("1e-70"):
            total += term
            term *= -reduced * reduced / ((n + 1) * (n + 2))
            n += 2
        # The sine of a rounded pi is not quite zero; it is meant to be.
        return Fraction(total.quantize(_ANGLE_STEP))


def cosine(angle: Fraction) -> Fraction:
    """The cosine of an angle in radians."""
    return sine(angle + Fraction(_PI) / 2)


def tangent(angle: Fraction) -> Fraction:
    """The tangent of an angle in radians."""
    below = cosine(angle)
    if below == 0:
        raise ArithmeticRefusedError("tan has no value at this angle")
    return sine(angle) / below


def shown(value: Fraction) -> str:
    """The value in digits: whole numbers in full, others to `SHOWN_DIGITS`."""
    if value.denominator == 1:
        return str(value.numerator)
    with localcontext(Context(prec=2 * MAX_DIGITS, rounding=ROUND_HALF_UP)):
        decimal = Decimal(value.numerator) / value.denominator
        last = min(0, decimal.adjusted() + 1) - SHOWN_DIGITS
        decimal = decimal.quantize(Decimal((0, (1,), last))).normalize()
    return f"{decimal:f}" if decimal.adjusted() >= _SMALLEST_PLAIN else str(decimal)


CONSTANTS: Final[Mapping[str, Fraction]] = {
    "pi": Fraction(_PI),
    "e": Fraction(_WORKING.exp(Decimal(1))),
}

FUNCTIONS: Final[Mapping[str, tuple[Callable[..., Fraction], range]]] = {
    "abs": (abs, range(1, 2)),
    "ceil": (lambda value: Fraction(math.ceil(value)), range(1, 2)),
    "cos": (cosine, range(1, 2)),
    "exp": (exponential, range(1, 2)),
    "floor": (lambda value: Fraction(math.floor(value)), range(1, 2)),
    "log": (logarithm, range(1, 3)),
    "max": (lambda *values: max(values), range(1, MAX_DIGITS)),
    "min": (lambda *values: min(values), range(1, MAX_DIGITS)),
    "round": (rounded, range(1, 3)),
    "sin": (sine, range(1, 2)),
    "sqrt": (square_root, range(1, 2)),
    "tan": (tangent, range(1, 2)),
}
"""By name, with how many numbers each takes."""


def _divisor(value: Fraction) -> Fraction:
    if value == 0:
        raise ArithmeticRefusedError("division by zero")
    return value


def _decimal(value: Fraction) -> Decimal:
    return _WORKING.divide(Decimal(value.numerator), Decimal(value.denominator))


def _natural(value: Fraction) -> Decimal:
    """The natural logarithm; close to 1 by its series, since the decimal would be a plain 1."""
    beyond = value - 1
    if abs(beyond) > _CLOSE:
        return _WORKING.ln(_decimal(value))
    with localcontext(_WORKING):
        x = _decimal(beyond)
        return x - x**2 / 2 + x**3 / 3 - x**4 / 4


def _kept(value: Decimal) -> Fraction:
    """What is kept of an inexact value; rounding makes log(8, 2) the 3 that it is."""
    return Fraction(_KEPT.plus(value))
