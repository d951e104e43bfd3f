"""Nothing in the repository betrays a secret, a machine or the registry it was built from."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.repo.tree import ROOT, told, tracked

# Written in halves, so that this file is no finding itself.
REGISTRIES = tuple(
    f"{name}.{domain}"
    for name, domain in (
        ("pypi", "org"),
        ("files.pythonhosted", "org"),
        ("registry.npmjs", "org"),
        ("registry.yarnpkg", "com"),
        ("proxy.golang", "org"),
        ("static.crates", "io"),
        ("index.crates", "io"),
        ("repo.maven.apache", "org"),
        ("deb.debian", "org"),
        ("archive.ubuntu", "com"),
    )
)
PATTERNS = {
    "registry host": "|".join(re.escape(host) for host in REGISTRIES),
    "registry option": r"-(?:-index|-extra-index)-url|-{2}trusted-host|PIP_(?:EXTRA_)?INDEX",
    "machine path": r"(?<![\w.~/-])/(?:root|home|work|Users)/[\w.-]",
    "private key": r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----",
    "access key": r"\b(?:AKIA[0-9A-Z]{16}|gh[pousr]_\w{30,}|sk-[A-Za-z0-9]{32,})\b",
    "password in a URL": r"\b[a-z][a-z0-9+]*://[^\s/:@<>{}$]+:[^\s/:@<>{}$*]{6,}@[\w.-]+\.[a-z]{2,}",
}
# Users' documents, kept to the byte: their content is not ours to reword.
CASES = ROOT / "tests/cases"


def findings(text: str, patterns: dict[str, str]) -> Iterator[str]:
    """Each line that betrays something, by its number and kind."""
    for kind, pattern in patterns.items():
        for number, line in enumerate(text.splitlines(), start=1):
            if found := re.search(pattern, line):
                yield f"{number}: {kind}: {found[0]}"


def texts() -> Iterator[tuple[str, str]]:
    """Every text file of ours with its content."""
    for path in tracked():
        content = path.read_bytes()
        if b"\0" not in content and not path.is_relative_to(CASES):
            yield path.relative_to(ROOT).as_posix(), content.decode(errors="replace")


def configured_hosts() -> set[str]:
    """The package indexes this machine's pip is told to use."""
    listing = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    said = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
    found = (urlsplit(url).hostname for url in re.findall(r"https?://[^\s'\"]+", said))
    return {host for host in found if host and "." in host and not host.startswith("127.")}


class TestRepository:
    def test_no_file_betrays_anything(self) -> None:
        found = [f"{name}:{each}" for name, text in texts() for each in findings(text, PATTERNS)]

        assert found == [], told(found)

    def test_no_file_names_where_this_machine_installs_from(self) -> None:
        hosts = {f"host {host}": re.escape(host) for host in configured_hosts()}

        found = [f"{name}:{each}" for name, text in texts() for each in findings(text, hosts)]

        assert found == [], told(found)

    def test_no_file_names_the_folder_it_stands_in(self) -> None:
        folder = {"this folder": re.escape(f"{ROOT}{os.sep}")}

        found = [f"{name}:{each}" for name, text in texts() for each in findings(text, folder)]

        assert found == [], told(found)

    def test_constraints_name_versions_only(self) -> None:
        lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        requirements = [line.partition("#")[0].strip() for line in lines]

        odd = [
            each for each in requirements if each and not re.match(r"[\w.-]+==[\w.]+( ;|$)", each)
        ]

        assert odd == []
        assert "://" not in "\n".join(lines)


class TestPatterns:
    @pytest.mark.parametrize(
        ("line", "kind"),
        [
            ("index = https://" + "pypi" + ".org/simple", "registry host"),
            ("pip install --extra-index" + "-url x", "registry option"),
            ("see /" + "root/notes", "machine path"),
            ("open('/" + "home/someone/x')", "machine path"),
            ("-----BEGIN RSA " + "PRIVATE KEY-----", "private key"),
            ("key = 'AKIA" + "A" * 16 + "'", "access key"),
            ("OPENAI_API_KEY=sk-" + "a" * 40, "access key"),
            ("postgres://me:" + "hunter22@db.example.com/x", "password in a URL"),
        ],
    )
    def test_a_planted_secret_is_found(self, line: str, kind: str) -> None:
        found = list(findings(f"fine\n{line}\n", PATTERNS))

        assert len(found) == 1
        assert found[0].startswith(f"2: {kind}: ")

    @pytest.mark.parametrize(
        "line",
        [
            json.dumps({"path": "/v1/chat/home/page"}),
            "postgres://$USER:$PASSWORD@db.example.com/x",
            "https://api.example.com/work/items",
            "sk-...",
        ],
    )
    def test_what_only_looks_alike_is_let_be(self, line: str) -> None:
        assert list(findings(line, PATTERNS)) == []
