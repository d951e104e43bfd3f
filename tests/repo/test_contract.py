"""The contract and the code agree on errors and on how lists are paged."""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import grimp
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from tests.repo.contract import SCRATCH, describe, described, write_scratch
from tests.repo.tree import ROOT, SERVICES, begun, modules, parse, told, write

ENUM = "ErrorReason"
PREFIX = "ERROR_REASON_"
# A handful that the operator configures: read as a whole.
UNPAGED = {"ListHooks", "ListMcpServers", "ListModels", "ListTools"}
# Defines what others raise; or speaks to the operator before any client can call.
SILENT = {"errors.py", "migrate.py"}


def declared(service: str) -> list[str]:
    """The values of a service's reason enum, as the contract spells them."""
    enums = (
        enum
        for file in described()
        if file.package == f"chatmind.{service}.v1"
        for enum in file.enum_type
    )
    return [value.name for enum in enums if enum.name == ENUM for value in enum.value]


def own_reasons(folder: Path) -> dict[str, str]:
    """The reason of each error class that sets one."""
    classes = (
        node
        for path in modules(folder)
        for node in ast.walk(parse(path))
        if isinstance(node, ast.ClassDef)
    )
    return {node.name: reason for node in classes if (reason := class_reason(node))}


def class_reason(node: ast.ClassDef) -> str:
    """The text a class sets `reason` to, or an empty one."""
    for each in node.body:
        targets = each.targets if isinstance(each, ast.Assign) else [getattr(each, "target", None)]
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        value = getattr(each, "value", None)
        if "reason" in names and isinstance(value, ast.Constant) and isinstance(value.value, str):
            return value.value
    return ""


def reachable(service: str) -> list[Path]:
    """The modules of a service and those of `services.common` that it builds on."""
    graph = grimp.build_graph("services", cache_dir=None)
    names = graph.find_upstream_modules(f"services.{service}", as_package=True)
    paths = (ROOT.joinpath(*name.split(".")).with_suffix(".py") for name in sorted(names))
    common = [path for path in paths if path.is_file() and path.name not in SILENT]
    return modules(ROOT / "services" / service) + common


def reasons(
    paths: Iterable[Path], root: Path, *, shared: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Each reason these modules can give, and where: their own, and those of `shared` they use."""
    for path in paths:
        for node in ast.walk(parse(path)):
            place = f"{path.relative_to(root).as_posix()}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.ClassDef):
                own = class_reason(node)
                inherited = [shared[name] for base in node.bases for name in names_in(base, shared)]
                yield from ((reason, place) for reason in ([own] if own else inherited))
            elif isinstance(node, ast.Call):
                yield from ((shared[name], place) for name in names_in(node.func, shared))


def names_in(node: ast.expr, known: Mapping[str, str]) -> list[str]:
    """Those of the `known` names that an expression such as `errors.GoneError` spells."""
    spelled = (getattr(each, "id", getattr(each, "attr", "")) for each in ast.walk(node))
    return [name for name in spelled if name in known]


def unpaged(files: Sequence[FileDescriptorProto]) -> Iterator[str]:
    """What each list rpc lacks to be read page by page."""
    messages = {
        f".{file.package}.{each.name}": {field.name for field in each.field}
        for file in files
        for each in file.message_type
    }
    for method in (each for file in files for service in file.service for each in service.method):
        if method.name.startswith("List") and method.name not in UNPAGED:
            asked, answered = messages[method.input_type], messages[method.output_type]
            for name in sorted({"page_size", "page_token"} - asked):
                yield f"{method.name} lacks {name}"
            if "next_page_token" not in answered:
                yield f"{method.name} lacks next_page_token"


class TestErrorReasons:
    @pytest.mark.parametrize("service", SERVICES)
    def test_the_contract_has_the_enum(self, service: str) -> None:
        values = declared(service)

        assert f"{PREFIX}UNSPECIFIED" in values
        assert [value for value in values if not value.startswith(PREFIX)] == []

    @pytest.mark.parametrize("service", SERVICES)
    def test_every_reason_in_code_stands_in_the_contract(self, service: str) -> None:
        if not begun(ROOT / "services" / service):
            pytest.skip(f"{service} is not begun")
        known = {value.removeprefix(PREFIX) for value in declared(service)}

        shared = own_reasons(ROOT / "services/common")
        given = reasons(reachable(service), ROOT, shared=shared)
        found = [f"{place}: {reason}" for reason, place in given if reason not in known]

        assert found == [], told(found)

    def test_reasons_are_found_wherever_they_are_given(self, tmp_path: Path) -> None:
        write(tmp_path / "common/errors.py", "class GoneError(Exception):\n    reason = 'GONE'\n")
        write(
            tmp_path / "agent/domain/errors.py",
            "class LateError(GoneError):\n    reason: ClassVar[str] = 'LATE'\n"
            "class LaterError(errors.GoneError):\n    pass\n",
        )
        write(tmp_path / "agent/api/servicer.py", "def act():\n    raise GoneError('x')\n")
        shared = own_reasons(tmp_path / "common")

        found = sorted(reasons(modules(tmp_path / "agent"), tmp_path, shared=shared))

        assert shared == {"GoneError": "GONE"}
        assert found == [
            ("GONE", "agent/api/servicer.py:2"),
            ("GONE", "agent/domain/errors.py:3"),
            ("LATE", "agent/domain/errors.py:1"),
        ]


class TestLists:
    def test_every_list_is_paged(self) -> None:
        found = list(unpaged(described()))

        assert found == [], told(found)

    def test_an_unpaged_list_is_told(self, tmp_path: Path) -> None:
        text = SCRATCH.replace("Measure", "ListSpans")

        files = describe(write_scratch(tmp_path, text))

        assert list(unpaged(files)) == [
            "ListSpans lacks page_size",
            "ListSpans lacks page_token",
            "ListSpans lacks next_page_token",
        ]
