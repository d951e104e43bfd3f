"""The tool that calculates.

An expression is parsed and walked, never executed: what is not arithmetic is refused by name.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Final

from services.agent.domain.chat import ToolEffect
from services.agent.domain.tools.arithmetic import (
    CONSTANTS,
    FUNCTIONS,
    ArithmeticRefusedError,
    bounded,
    divide,
    divide_floor,
    number,
    power,
    remainder,
    shown,
)
from services.agent.domain.tools.errors import FailedToolError, RetryToolError
from services.agent.domain.tools.function import FunctionTool, function_tool

MAX_CHARS: Final = 1000
MAX_DEPTH: Final = 50

_OPERATORS: Final[Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: divide,
    ast.FloorDiv: divide_floor,
    ast.Mod: remainder,
    ast.Pow: power,
}
_SIGNS: Final = str.maketrans({"×": "*", "÷": "/", "\N{MINUS SIGN}": "-"})
_HINTS: Final[Mapping[type[ast.AST], str]] = {
    ast.BitXor: "^ is not known; write ** for powers",
    ast.Tuple: "write numbers without commas: 1000, not 1,000",
    ast.Compare: "comparisons are not known; calculate both sides",
    ast.Constant: "only real numbers can be calculated with",
    ast.Call: "functions are called as in max(1, 2), and a product is written with *",
}


class ExpressionError(ArithmeticRefusedError):
    """The expression is no arithmetic, as opposed to one without a value."""


def calculator_tool() -> FunctionTool:
    """The tool `calculator`."""

    async def calculator(expression: str) -> str:
        """Calculates exactly. Use it for every calculation instead of reckoning yourself.

        Goes in: numbers with + - * / // % ** and parentheses, the functions abs, ceil, cos, exp,
        floor, log, max, min, round, sin, sqrt and tan, and the constants pi and e. Angles are in
        radians, log(x) is natural and log(x, 10) is not, round(x, 2) rounds halves away from zero.
        Comes out: the result as one number, to 28 places if it is not whole.

        Examples:
            {"expression": "0.1 + 0.2"} → 0.3
            {"expression": "round(1200 * 1.035 ** 10, 2)"} → 1692.72
            {"expression": "sqrt(2)"} → 1.4142135623730950488016887242
            {"expression": "1 / 0"} → Error: division by zero.

        Args:
            expression: what to calculate, such as "(3 + 4) * 2.5"; no units, variables or commas
                in numbers.
        """
        try:
            return calculate(expression)
        except ExpressionError as error:
            raise RetryToolError(str(error)) from error
        except ArithmeticRefusedError as error:
            raise FailedToolError(str(error)) from error

    return function_tool(calculator, idempotent=True, effect=ToolEffect.READ_ONLY, trusted=True)


def calculate(expression: str) -> str:
    """The value of an expression, in digits.

    Raises:
        ExpressionError: it is no arithmetic, or too long.
        ArithmeticRefusedError: it has no value, or one that is out of bounds.
    """
    if len(expression) > MAX_CHARS:
        raise ExpressionError(f"the expression is longer than {MAX_CHARS} characters")
    text = " ".join(expression.translate(_SIGNS).split())
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        place = getattr(error, "offset", None)
        where = f" at character {place}" if place else ""
        raise ExpressionError(f"the expression cannot be read{where}") from error
    return shown(_Walk(text).value(tree, 0))


class _Walk:
    """Works out a parsed expression."""

    def __init__(self, text: str) -> None:
        self._text = text

    def value(self, node: ast.expr, depth: int) -> Fraction:
        if depth > MAX_DEPTH:
            raise ExpressionError(f"the expression is nested deeper than {MAX_DEPTH} levels")
        match node:
            case ast.Constant(value=bool()):
                pass
            case ast.Constant(value=int() as whole):
                return bounded(Fraction(whole))
            case ast.Constant(value=float()):
                # The parser has rounded it already; what was written is exact.
                return number(ast.get_source_segment(self._text, node) or "")
            case ast.Name(id=name) if name in CONSTANTS:
                return CONSTANTS[name]
            case ast.UnaryOp(op=ast.USub()):
                return -self.value(node.operand, depth + 1)
            case ast.UnaryOp(op=ast.UAdd()):
                return self.value(node.operand, depth + 1)
            case ast.BinOp():
                return self._chain(node, depth)
            case ast.Call(func=ast.Name(id=name), keywords=[]):
                return self._call(name, node.args, depth)
        raise ExpressionError(_unknown(node))

    def _chain(self, node: ast.expr, depth: int) -> Fraction:
        """A chain such as 1 + 2 + 3, however long, is one level."""
        links = []
        while isinstance(node, ast.BinOp):
            links.append(node)
            node = node.left
        result = self.value(node, depth + 1)
        for link in reversed(links):
            operate = _OPERATORS.get(type(link.op))
            if operate is None:
                raise ExpressionError(_unknown(link.op))
            result = bounded(operate(result, self.value(link.right, depth + 1)))
        return result

    def _call(self, name: str, arguments: list[ast.expr], depth: int) -> Fraction:
        if name not in FUNCTIONS:
            known = ", ".join(FUNCTIONS)
            raise ExpressionError(f"there is no function {name[:64]!r}; there are: {known}")
        function, counts = FUNCTIONS[name]
        if len(arguments) not in counts:
            most = "" if len(counts) == 1 else f" to {counts[-1]}"
            raise ExpressionError(f"{name} takes {counts[0]}{most} numbers")
        values = [self.value(each, depth + 1) for each in arguments]
        return bounded(function(*values))


def _unknown(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return f"there is no variable {node.id[:64]!r}; there are pi and e"
    return _HINTS.get(type(node), f"a {type(node).__name__} is no arithmetic")
