"""Every setting stands in docs/configuration.md with its default."""

import importlib
import inspect
from collections.abc import Iterator

import pytest
from pydantic import AliasChoices
from pydantic_settings import BaseSettings

from tests.repo.tree import ROOT, SERVICES

DOCUMENT = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
# These defaults are told in words, because they are empty, required or another setting's.
TOLD_IN_WORDS = ("", "None", "PydanticUndefined")


def settings() -> Iterator[tuple[str, str]]:
    """The variable and the default of every setting of every service."""
    for service in SERVICES:
        module = importlib.import_module(f"services.{service}.settings")
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if issubclass(kind, BaseSettings) and kind.__module__ == module.__name__:
                for name, field in kind.model_fields.items():
                    alias = field.validation_alias
                    named = alias.choices[0] if isinstance(alias, AliasChoices) else alias
                    variable = str(named or f"{kind.model_config['env_prefix']}{name.upper()}")
                    yield variable, str(field.default)


def rows(variable: str) -> list[str]:
    """The table rows that tell of a variable, by its own name or by that of every service."""
    service = variable.removeprefix("CHATMIND_").partition("_")[0]
    general = variable.replace(f"CHATMIND_{service}_", "CHATMIND_<SERVICE>_", 1)
    return [
        line
        for line in DOCUMENT.splitlines()
        if line.startswith((f"| `{variable}`", f"| `{general}`"))
    ]


@pytest.mark.parametrize(("variable", "default"), sorted(set(settings())))
def test_a_setting_is_documented_with_its_default(variable: str, default: str) -> None:
    """A row names the variable, and says what holds where it is unset."""
    found = rows(variable)

    assert found, f"{variable} is missing from docs/configuration.md"
    told = "openai" in default or default in TOLD_IN_WORDS or variable.endswith("_LISTEN")
    assert told or any(f"`{default}`" in row for row in found), f"{variable} defaults to {default}"
