import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.agent.clients.extensions import (
    ExtensionError,
    Extensions,
    load_hooks,
    load_tools,
)
from services.agent.domain.hooks.registry import NoHistory
from services.agent.domain.hooks.shipped import SHIPPED

HOOK = """
from services.agent.domain.hooks.hook import Hook, HookConfig

class Mine(Hook[HookConfig]):
    'Does nothing.'
    name = {name!r}

HOOKS = [Mine]
"""
TOOL = """
from services.agent.domain.tools.function import function_tool

async def convert(amount: float) -> str:
    'Converts an amount.'
    return str(amount)

TOOLS = [function_tool(convert, idempotent=True)]
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of an operator's, `my_package`, that can be imported."""
    package = tmp_path / "my_package"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    yield package
    for name in [name for name in sys.modules if name.split(".")[0] == "my_package"]:
        del sys.modules[name]


class TestLoad:
    def test_nothing_is_named(self) -> None:
        assert (load_hooks(""), load_tools(" , ")) == ((), ())

    def test_hooks_of_several_modules(self, package: Path) -> None:
        (package / "a.py").write_text(HOOK.format(name="a"))
        (package / "b.py").write_text(HOOK.format(name="b"))

        hooks = load_hooks("my_package.a, my_package.b")

        assert [kind.name for kind in hooks] == ["a", "b"]

    def test_tools(self, package: Path) -> None:
        (package / "tools.py").write_text(TOOL)

        assert [tool.spec.name for tool in load_tools("my_package.tools")] == ["convert"]

    @pytest.mark.parametrize(
        ("source", "why"),
        [
            (None, "cannot be imported: ModuleNotFoundError: No module named 'my_package.x'"),
            ("import nothing_like_it", "cannot be imported: ModuleNotFoundError"),
            ("1 +", "cannot be imported: SyntaxError"),
            (
                "raise ValueError('no')",
                "'my_package.x' cannot be imported: ValueError: no",
            ),
            ("", "the module 'my_package.x' has no list HOOKS"),
            ("HOOKS = 'x'", "the module 'my_package.x' has no list HOOKS"),
            ("HOOKS = [int]", "my_package.x: HOOKS holds <class 'int'>, which is no Hook class"),
            ("HOOKS = [5]", "my_package.x: HOOKS holds 5, which is no Hook class"),
            (
                "from services.agent.domain.hooks.hook import Hook\nHOOKS = [Hook]",
                "my_package.x: the hook Hook has no name",
            ),
        ],
    )
    def test_what_cannot_be_used_is_told_in_a_line(
        self, package: Path, source: str | None, why: str
    ) -> None:
        if source is not None:
            (package / "x.py").write_text(source)

        with pytest.raises(ExtensionError) as refused:
            load_hooks("my_package.x")

        assert why in str(refused.value)

    @pytest.mark.parametrize("source", ["TOOLS = [5]", "def f(): ...\nTOOLS = [f]"])
    def test_what_is_no_tool_is_told(self, package: Path, source: str) -> None:
        (package / "x.py").write_text(source)

        with pytest.raises(ExtensionError, match="which is no tool"):
            load_tools("my_package.x")


class TestExtensions:
    def test_a_name_that_is_taken_is_refused(self, package: Path) -> None:
        (package / "hooks.py").write_text(HOOK.format(name="logging"))
        (package / "tools.py").write_text(TOOL)
        hooks, tools = load_hooks("my_package.hooks"), load_tools("my_package.tools")

        with pytest.raises(ExtensionError, match="hook name 'logging' is malformed or comes twice"):
            Extensions(hooks=hooks).with_hooks(SHIPPED, NoHistory())
        with pytest.raises(ExtensionError, match="tool name 'convert' is malformed or comes twice"):
            Extensions(tools=(*tools, *tools)).with_tools([])
