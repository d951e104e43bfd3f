"""Every test that docs/invariants names as a proof is there."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.repo.tree import ROOT, parse, told, write

NAMED = re.compile(r"`(tests/[^`]*)`")


def missing(root: Path) -> Iterator[str]:
    """The tests that a page of the folder names and that are not there."""
    for page in sorted((root / "docs/invariants").glob("*.md")):
        for name in NAMED.findall(page.read_text(encoding="utf-8")):
            if not exists(root, name):
                yield f"{page.name} names {name}"


def exists(root: Path, name: str) -> bool:
    """Whether there is such a test: `path`, `path::test`, `path::Class` or `path::Class::test`."""
    path, *inner = name.split("::")
    module = root / path
    if not module.is_file():
        return False
    body: list[ast.stmt] = parse(module).body
    for part in inner:
        found = [each for each in body if getattr(each, "name", None) == part]
        if not found or not part.lower().startswith("test"):
            return False
        body = getattr(found[0], "body", [])
    return True


def test_every_test_that_is_named_is_there() -> None:
    found = list(missing(ROOT))

    assert found == [], told(found)


def test_pages_name_tests() -> None:
    pages = list((ROOT / "docs/invariants").glob("*.md"))

    assert pages
    assert all(NAMED.search(page.read_text(encoding="utf-8")) for page in pages)


def test_names_of_nothing_are_told(tmp_path: Path) -> None:
    write(
        tmp_path / "tests/a/test_b.py",
        "def test_c(): ...\n\nclass TestD:\n    async def test_e(self): ...\n\ndef helper(): ...\n",
    )
    good = ["", "::test_c", "::TestD", "::TestD::test_e"]
    bad = ["::test_e", "::TestD::test_c", "::TestX", "::helper", "::TestD::test_e::test_e"]
    text = " ".join(f"`tests/a/test_b.py{inner}`" for inner in (*good, *bad))
    write(tmp_path / "docs/invariants/page.md", f"{text} `tests/a/test_x.py` `tests/a`\n")

    named = [f"tests/a/test_b.py{inner}" for inner in bad]
    assert list(missing(tmp_path)) == [
        f"page.md names {name}" for name in (*named, "tests/a/test_x.py", "tests/a")
    ]
