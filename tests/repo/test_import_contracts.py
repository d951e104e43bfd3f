"""The import contracts are kept, and each is seen to break when it is broken."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo.tree import ROOT, write

SERVICES = "no service knows another"
COMMON = "what all services share knows none of them"
CLI = "the command line speaks to services over gRPC only"
NO_CLI = "no service knows the command line"
ROOMS = "only main wires; rooms on one line do not meet; the domain stands alone"
DOMAIN = "the domain knows no transport, driver or provider"
ALL = {SERVICES, COMMON, CLI, NO_CLI, ROOMS, DOMAIN}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The packages under contract, to plant imports in."""
    unwanted = shutil.ignore_patterns("__pycache__")
    for package in ("services", "cli"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=unwanted)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def plant(root: Path, module: str, line: str) -> None:
    """Add a module holding one line, and the packages it needs."""
    path = root / f"{module.replace('.', '/')}.py"
    write(path, f"{line}\n")
    for folder in list(path.parents)[: module.count(".")]:
        if not (folder / "__init__.py").exists():
            write(folder / "__init__.py")


def verdicts(root: Path) -> tuple[set[str], set[str], str]:
    """Which contracts are kept, which are broken, and all that the linter says."""
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    said = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    lines = said.stdout.splitlines()
    kept, broken = (
        {line.removesuffix(word) for line in lines if line.endswith(word)}
        for word in (" KEPT", " BROKEN")
    )
    return kept, broken, said.stdout + said.stderr


class TestContracts:
    def test_all_are_kept(self) -> None:
        kept, broken, said = verdicts(ROOT)

        assert (ALL, set()) == (kept, broken), said

    @pytest.mark.parametrize(
        ("module", "line", "contract"),
        [
            ("services.agent.clients.planted", "import services.knowledge", SERVICES),
            ("services.common.planted", "import services.embedding", COMMON),
            ("cli.planted", "import services.gateway", CLI),
            ("services.common.planted", "import cli", NO_CLI),
            ("services.agent.settings", "import services.agent.api.planted", ROOMS),
            ("services.agent.domain.planted", "import services.agent.settings", ROOMS),
            ("services.gateway.web.planted", "import services.gateway.api.planted", ROOMS),
            ("services.knowledge.worker.planted", "import services.knowledge.store.planted", ROOMS),
            ("services.agent.planted", "", ROOMS),
            ("services.embedding.domain.planted", "import grpc.aio", DOMAIN),
            ("services.agent.domain.deep.planted", "from google.rpc import status_pb2", DOMAIN),
            ("services.knowledge.domain.planted", "import asyncpg", DOMAIN),
            ("services.agent.domain.planted", "from chatmind.agent.v1 import run_pb2", DOMAIN),
        ],
    )
    def test_a_planted_import_breaks_its_contract(
        self, copy: Path, module: str, line: str, contract: str
    ) -> None:
        target = line.removeprefix("import ")
        if target.startswith("services.") and not (copy / target.replace(".", "/")).exists():
            plant(copy, target, "")
        plant(copy, module, line)

        kept, broken, said = verdicts(copy)

        assert (ALL - {contract}, {contract}) == (kept, broken), said
