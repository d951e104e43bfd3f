import gc
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from services.agent.domain.tools.arithmetic import ArithmeticRefusedError
from services.agent.domain.tools.calculator import calculate, calculator_tool
from services.agent.domain.tools.errors import FailedToolError, RetryToolError
from tests.agent.domain.tools.contexts import CONTEXT

TOOL = calculator_tool()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Without the garbage collector, which parsing sets off: it looks at all that tests left."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class TestCalculate:
    @pytest.mark.parametrize(
        ("expression", "value"),
        [
            ("0.1 + 0.2", "0.3"),
            ("1 / 3 * 3", "1"),
            ("-7 // 2", "-4"),
            ("-7 % 3", "2"),
            ("2 ** 3 ** 2", "512"),
            ("-2 ** 2", "-4"),
            ("2 - 3 - 4", "-5"),
            ("+(3 + 4)\n* 2.5", "17.5"),
            ("0.1234567890123456789012345 * 1", "0.1234567890123456789012345"),
            ("1_000 * 0xff", "255000"),
            ("3 × 4 ÷ 2 − 1", "5"),
            ("sqrt(2) ** 2", "2"),
            ("floor(log(1000, 10))", "3"),
            ("sin(pi) + cos(pi / 2)", "0"),
            ("log(e)", "1"),
            ("max(1, abs(-3), 2) - min(1, 2)", "2"),
            ("round(2 / 3, 4)", "0.6667"),
            ("1" + "+1" * 499, "500"),
        ],
    )
    def test_results_are_exact(self, expression: str, value: str) -> None:
        assert calculate(expression) == value

    @pytest.mark.parametrize(
        ("expression", "told"),
        [
            ("", "cannot be read"),
            ("1 + * 2", "cannot be read at character 5"),
            ("1 / 0", "division by zero"),
            ("5 // (2 - 2)", "division by zero"),
            ("5 % 0", "division by zero"),
            ("1,000 + 1", "without commas"),
            ("2 ^ 3", r"write \*\* for powers"),
            ("1 < 2", "comparisons"),
            ("x + 1", "no variable 'x'; there are pi and e"),
            ("gcd(4, 6)", "no function 'gcd'; there are: abs, ceil,"),
            ("sin(1, 2)", "sin takes 1 numbers"),
            ("log(1, 2, 3)", "log takes 1 to 2 numbers"),
            ("log(x=1)", "called as in"),
            ("2(3)", r"written with \*"),
            ("max(*[1])", "Starred is no arithmetic"),
            ("True", "only real numbers"),
            ("1j", "only real numbers"),
            ("'a' * 9", "only real numbers"),
            ("__import__('os')", "no function '__import__'"),
            ("(1).__class__", "Attribute is no arithmetic"),
            ("[1][0]", "Subscript is no arithmetic"),
            ("lambda: 1", "Lambda is no arithmetic"),
            ("1 if 2 else 3", "IfExp is no arithmetic"),
        ],
    )
    def test_what_is_no_arithmetic_is_told_what_is(self, expression: str, told: str) -> None:
        with pytest.raises(ArithmeticRefusedError, match=told):
            calculate(expression)

    @pytest.mark.parametrize(
        "expression",
        [
            "9**9**9",
            "9**9**9**9",
            "2**-9**9**9",
            "10**999 * 10**999",
            "1e999999999",
            "exp(exp(exp(9)))",
            "round(1, 10**900)",
            "(" * 1000,
            "(1 + " * 60 + "1" + ")" * 60,
            "2*(" * 60 + "1" + ")" * 60,
            "-" * 999 + "1",
            "2**" * 300 + "1",
            "sin(" * 150 + "1" + ")" * 150,
            "9" * 1001,
        ],
    )
    def test_what_would_take_long_is_refused_at_once(self, expression: str) -> None:
        with _undisturbed():
            begun = time.thread_time()
            with pytest.raises(ArithmeticRefusedError):
                calculate(expression)

            assert time.thread_time() - begun < 0.1

    def test_the_dearest_expressions_that_fit_are_quick(self) -> None:
        begun = time.thread_time()
        for link in ("+1/7919", "*(1/7919)", "+sin(9)", "+2**.5", "-1e-999"):
            calculate("1" + link * (999 // len(link)))

        assert time.thread_time() - begun < 1

    def test_parentheses_may_be_nested(self) -> None:
        assert calculate("(" * 45 + "1" + "+1)" * 45) == "46"


class TestCalculator:
    async def test_it_answers_with_the_number_alone(self) -> None:
        assert (await TOOL.run({"expression": "0.1 + 0.2"}, CONTEXT)).text == "0.3"

    async def test_an_expression_that_is_wrong_may_be_tried_again(self) -> None:
        with pytest.raises(RetryToolError, match="without commas"):
            await TOOL.run({"expression": "1,000 + 1"}, CONTEXT)

    async def test_one_without_value_may_not(self) -> None:
        with pytest.raises(FailedToolError, match="division by zero"):
            await TOOL.run({"expression": "1 / 0"}, CONTEXT)

    async def test_the_examples_of_its_description_hold(self) -> None:
        told = re.findall(r'\{"expression": "(.*)"\} → (?!Error)(.*)', TOOL.spec.description)

        assert [(each, calculate(each)) for each, _ in told] == told
        assert len(told) == 3
