"""The contract keeps buf's rules of style and of compatibility."""

import subprocess
from pathlib import Path

import pytest

from tests.repo.contract import SCRATCH, write_scratch
from tools import proto


class TestLint:
    def test_the_contract_is_clean(self) -> None:
        proto.lint(proto.PROTOS)

    def test_the_scratch_contract_is_clean(self, tmp_path: Path) -> None:
        proto.lint(write_scratch(tmp_path))

    @pytest.mark.parametrize(
        ("comment", "complaint"),
        [
            ("// ScratchService exists for this test.", 'Service "ScratchService"'),
            ("// Measure measures a span.", 'RPC "Measure"'),
            ("// Span has two ends.", 'Message "Span"'),
            ("// start is the first end.", 'Field "start"'),
            ("// how to measure.", 'Oneof "how"'),
            ("// Unit is what a length is counted in.", 'Enum "Unit"'),
            ("// UNIT_LINE is a line.", 'Enum value "UNIT_LINE"'),
        ],
    )
    def test_every_element_needs_a_comment(
        self, tmp_path: Path, comment: str, complaint: str
    ) -> None:
        protos = write_scratch(tmp_path, SCRATCH.replace(comment, ""))

        with pytest.raises(proto.ToolError) as caught:
            proto.lint(protos)

        assert len(str(caught.value).splitlines()) == 1
        assert f"{complaint} should have a non-empty comment" in str(caught.value)

    def test_each_rpc_needs_its_own_request(self, tmp_path: Path) -> None:
        shared = SCRATCH.replace("rpc Measure(MeasureRequest)", "rpc Measure(Span)")

        with pytest.raises(proto.ToolError, match='RPC request type "Span" should be named'):
            proto.lint(write_scratch(tmp_path, shared))


class TestBreaking:
    def test_the_contract_serves_clients_of_the_last_release(self) -> None:
        proto.breaking(proto.PROTOS, proto.ROOT)

    def test_without_a_release_anything_goes(self, tmp_path: Path) -> None:
        assert proto.breaking(write_scratch(tmp_path / "protos"), tmp_path) == ""

    def test_the_highest_release_is_the_one_compared_with(self, released: Path) -> None:
        assert proto.breaking(released / "protos", released) == "v0.10.0"

    def test_a_changed_field_is_refused(self, released: Path) -> None:
        changed = SCRATCH.replace("int32 length = 1", "string length = 1")
        write_scratch(released / "protos", changed)

        with pytest.raises(proto.ToolError, match=r'"length" .* changed type'):
            proto.breaking(released / "protos", released)

    def test_a_new_field_is_welcome(self, released: Path) -> None:
        grown = SCRATCH.replace(
            "int32 length = 1;", "int32 length = 1;\n  // unit is its unit.\n  Unit unit = 2;"
        )
        write_scratch(released / "protos", grown)

        assert proto.breaking(released / "protos", released) == "v0.10.0"


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """A repository whose contract was released twice."""
    write_scratch(tmp_path / "protos")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "protos")
    git(tmp_path, "commit", "--quiet", "--message", "Release")
    git(tmp_path, "tag", "v0.9.0")
    git(tmp_path, "tag", "v0.10.0")
    return tmp_path


def git(repository: Path, *arguments: str) -> None:
    author = ["-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "tag.gpgSign=false"]
    command = ["git", *author, "-c", "commit.gpgSign=false", "-C", str(repository), *arguments]
    subprocess.run(command, check=True, capture_output=True)
