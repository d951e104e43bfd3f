"""The repository as its own tests read it."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SERVICES = ("agent", "embedding", "gateway", "knowledge")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def tracked(root: Path = ROOT) -> list[Path]:
    """Every file of the work tree that git keeps or would keep."""
    if not (root / ".git").exists():
        pytest.skip("no git work tree: nothing tells our files from what lies beside them")
    listing = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    command = ["git", "-c", f"safe.directory={root}", "-C", str(root), *listing]
    names = subprocess.run(command, capture_output=True, check=True).stdout.decode().split("\0")
    return [path for name in sorted(names) if name and (path := root / name).is_file()]


def modules(folder: Path) -> list[Path]:
    """Every Python module below `folder`, in a stable order; none where there is no such folder."""
    return sorted(folder.rglob("*.py"))


def parse(path: Path) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def functions(tree: ast.AST) -> Iterator[Function]:
    """Every function and method, nested ones too."""
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield node


def begun(service: Path) -> bool:
    """Whether a service's folder holds more than the file that makes it a package."""
    return any(path.name != "__init__.py" for path in modules(service))


def write(path: Path, text: str = "") -> Path:
    """Put a file in its place, with the folders it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def told(found: list[str]) -> str:
    """Findings as the lines of a failure."""
    return "\n".join(["", *found])
