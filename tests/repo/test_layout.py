"""Every service has the same rooms, and the tests mirror the tree."""

import ast
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.repo.tree import ROOT, SERVICES, begun, functions, modules, parse, told, write

ROOMS = (
    "__main__.py",
    "main.py",
    "settings.py",
    "api/__init__.py",
    "clients/__init__.py",
    "domain/__init__.py",
    "domain/errors.py",
    "domain/ports.py",
)
MORE_ROOMS = {
    "agent": ("store/__init__.py", "store/migrations"),
    "embedding": (),
    "gateway": ("web/__init__.py",),
    "knowledge": ("store/__init__.py", "store/migrations"),
}
# More statements than this inside functions is logic that wants a test module of its own.
LOGIC = 12
TESTED_ELSEWHERE = {
    "services/*/main.py": "wiring: tests/e2e runs it",
    "services/*/store/*.py": "every store runs the suites in tests/contracts",
    "cli/main.py": "wiring: tests/e2e runs it",
}
MIRRORED = (*(f"services/{name}" for name in ("common", *SERVICES)), "cli")


def missing_rooms(service: Path) -> list[str]:
    """The rooms a service lacks."""
    rooms = ROOMS + MORE_ROOMS[service.name]
    return [room for room in rooms if not (service / room).exists()]


def mirror(package: str) -> str:
    """Where the tests of a package live: `services/agent` is mirrored by `tests/agent`."""
    return f"tests/{package.removeprefix('services/')}"


def strays(root: Path) -> Iterator[str]:
    """Test modules whose name and place belong to no module."""
    for package in MIRRORED:
        tests = root / mirror(package)
        for path in modules(tests):
            if path.name.startswith("test_"):
                subject = path.relative_to(tests).with_name(path.stem.removeprefix("test_"))
                place = root / package / subject
                if not place.with_suffix(".py").exists() and not place.is_dir():
                    yield f"{path.relative_to(root)} tests no {place.relative_to(root)}.py"


def untested(root: Path) -> Iterator[str]:
    """Modules with logic and no test module."""
    for package in MIRRORED:
        for path in modules(root / package):
            name = path.relative_to(root).as_posix()
            inner = path.relative_to(root / package)
            test = root / mirror(package) / inner.with_name(f"test_{path.stem}.py")
            excused = any(fnmatch(name, pattern) for pattern in TESTED_ELSEWHERE)
            if not excused and not test.exists() and (size := logic(path)) > LOGIC:
                yield f"{name} has {size} statements and no {test.relative_to(root)}"


def logic(path: Path) -> int:
    """How many statements do something inside the functions of a module."""
    bodies = (each for function in functions(parse(path)) for each in function.body)
    statements = {id(node): node for body in bodies for node in ast.walk(body)}.values()
    return sum(isinstance(node, ast.stmt) and not hollow(node) for node in statements)


def hollow(node: ast.stmt) -> bool:
    """Whether a statement is a docstring, an ellipsis or `pass`."""
    return isinstance(node, ast.Pass) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )


class TestRooms:
    @pytest.mark.parametrize("name", SERVICES)
    def test_a_service_has_every_room(self, name: str) -> None:
        service = ROOT / "services" / name
        if not begun(service):
            pytest.skip(f"{name} is not begun")

        assert missing_rooms(service) == []

    def test_a_missing_room_is_told(self, tmp_path: Path) -> None:
        service = tmp_path / "embedding"
        for room in ROOMS:
            write(service / room)
        (service / "domain/ports.py").unlink()

        assert missing_rooms(service) == ["domain/ports.py"]


class TestMirror:
    def test_every_test_module_has_its_subject(self) -> None:
        found = list(strays(ROOT))

        assert found == [], told(found)

    def test_every_module_with_logic_has_its_test(self) -> None:
        found = list(untested(ROOT))

        assert found == [], told(found)

    def test_a_stray_test_is_told(self, tmp_path: Path) -> None:
        write(tmp_path / "services/agent/domain/loop.py")
        write(tmp_path / "tests/agent/domain/test_loop.py")
        write(tmp_path / "tests/agent/test_loop.py")

        assert list(strays(tmp_path)) == [
            "tests/agent/test_loop.py tests no services/agent/loop.py"
        ]

    def test_an_untested_module_is_told(self, tmp_path: Path) -> None:
        long = "def act() -> None:\n    '''Act.'''\n" + "    print()\n" * (LOGIC + 1)
        write(tmp_path / "services/agent/domain/loop.py", long)
        write(tmp_path / "services/agent/main.py", long)
        write(tmp_path / "services/agent/domain/small.py", "def act() -> None:\n    print()\n")

        assert list(untested(tmp_path)) == [
            "services/agent/domain/loop.py has 13 statements and no tests/agent/domain/test_loop.py"
        ]
