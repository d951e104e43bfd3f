"""What no linter here checks: sizes, loose ends, and tasks that nobody owns."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.repo.tree import ROOT, functions, modules, parse, told, write

PRODUCT = ("services", "cli")
FUNCTION_LINES = 60
FILE_LINES = 400
LOOSE_ENDS = r"\b(?:TODO|FIXME|XXX|HACK)\b"
TASK_OWNER = "services/common/tasks.py"


def too_long(root: Path) -> Iterator[str]:
    """Functions and files past the house numbers."""
    for name, path in product(root):
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > FILE_LINES:
            yield f"{name} has {lines} lines"
        for function in functions(parse(path)):
            lines = (function.end_lineno or function.lineno) - function.lineno + 1
            if lines > FUNCTION_LINES:
                yield f"{name}: {function.name} has {lines} lines"


def loose_ends(root: Path) -> Iterator[str]:
    """Work put off: a mark in a comment, or a method that only says it is missing."""
    for name, path in product(root):
        for number, comment in comments(path):
            if re.search(LOOSE_ENDS, comment):
                yield f"{name}:{number}: {comment}"
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Name) and node.id == "NotImplementedError":
                yield f"{name}:{node.lineno}: NotImplementedError"


def unexplained(root: Path) -> Iterator[str]:
    """Type checks switched off without a word on why."""
    for name, path in product(root):
        for number, comment in comments(path):
            if re.fullmatch(r"#\s*type:\s*ignore[^#]*", comment):
                yield f"{name}:{number}: {comment}"


def prints(root: Path) -> Iterator[str]:
    """Services speak through their log only."""
    for name, path in product(root, "services"):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Name) and node.id == "print":
                yield f"{name}:{node.lineno}: print"


def unowned_tasks(root: Path) -> Iterator[str]:
    """Tasks started with nobody to await them and to log how they failed."""
    for name, path in product(root):
        for node in ast.walk(parse(path)) if name != TASK_OWNER else ():
            if isinstance(node, ast.Attribute) and node.attr in {"create_task", "ensure_future"}:
                owner = ast.unparse(node.value)
                if owner == "asyncio" or "loop" in owner:
                    yield f"{name}:{node.lineno}: {owner}.{node.attr}"


def product(root: Path, *packages: str) -> Iterator[tuple[str, Path]]:
    """Every module of the product by its name."""
    for package in packages or PRODUCT:
        for path in modules(root / package):
            yield path.relative_to(root).as_posix(), path


def comments(path: Path) -> Iterator[tuple[int, str]]:
    """Every comment of a module by its line."""
    source = io.StringIO(path.read_text(encoding="utf-8"))
    for token in tokenize.generate_tokens(source.readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


class TestProduct:
    def test_functions_and_files_stay_short(self) -> None:
        found = list(too_long(ROOT))

        assert found == [], told(found)

    def test_nothing_is_left_for_later(self) -> None:
        found = list(loose_ends(ROOT))

        assert found == [], told(found)

    def test_every_type_check_switched_off_says_why(self) -> None:
        found = list(unexplained(ROOT))

        assert found == [], told(found)

    def test_services_do_not_print(self) -> None:
        found = list(prints(ROOT))

        assert found == [], told(found)

    def test_every_task_has_an_owner(self) -> None:
        found = list(unowned_tasks(ROOT))

        assert found == [], told(found)


class TestChecks:
    def test_a_long_function_and_a_long_file_are_told(self, tmp_path: Path) -> None:
        write(tmp_path / "services/a.py", "def act():\n" + "    x = 1\n" * FUNCTION_LINES)
        write(tmp_path / "cli/b.py", "x = 1\n" * (FILE_LINES + 1))

        assert list(too_long(tmp_path)) == [
            "services/a.py: act has 61 lines",
            "cli/b.py has 401 lines",
        ]

    def test_loose_ends_are_told(self, tmp_path: Path) -> None:
        text = "x = 'TO" + "DO'  # TO" + "DO later\ndef f():\n    raise NotImplementedError\n"
        write(tmp_path / "cli/a.py", text)

        assert [each.partition(": ")[0] for each in loose_ends(tmp_path)] == [
            "cli/a.py:1",
            "cli/a.py:3",
        ]

    def test_a_check_switched_off_wants_a_second_comment(self, tmp_path: Path) -> None:
        write(
            tmp_path / "services/a.py",
            "import x  # type: ignore[import]\n"
            "import z  # type: ignore[import]  # ships no types\n",
        )

        assert [each.partition(": ")[0] for each in unexplained(tmp_path)] == ["services/a.py:1"]

    def test_a_print_is_told_in_services_only(self, tmp_path: Path) -> None:
        write(tmp_path / "services/a.py", "print(1)\n")
        write(tmp_path / "cli/a.py", "print(1)\n")

        assert list(prints(tmp_path)) == ["services/a.py:1: print"]

    def test_an_unowned_task_is_told(self, tmp_path: Path) -> None:
        owners = ("asyncio", "group", "get_running_loop()")
        text = "".join(f"{owner}.create_task(x())\n" for owner in owners)
        write(tmp_path / "services/a.py", text)
        write(tmp_path / TASK_OWNER, text)

        assert list(unowned_tasks(tmp_path)) == [
            "services/a.py:1: asyncio.create_task",
            "services/a.py:3: get_running_loop().create_task",
        ]
