"""The committed stubs are what the contract says."""

from pathlib import Path

import pytest

from tests.repo.contract import write_scratch
from tests.repo.tree import write
from tools import proto


class TestVersions:
    def test_generators_are_the_pinned_ones(self) -> None:
        proto.assert_versions()

    def test_another_generator_is_refused_by_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(proto.PINS, "mypy-protobuf", "0.0.1")

        with pytest.raises(proto.ToolError, match=r"mypy-protobuf .*, not 0\.0\.1"):
            proto.assert_versions()


class TestStubs:
    def test_committed_stubs_are_fresh(self) -> None:
        proto.check(proto.PROTOS, proto.GEN)

    def test_every_kind_of_difference_is_told(self, tmp_path: Path) -> None:
        protos, gen = write_scratch(tmp_path / "protos"), tmp_path / "gen"
        proto.generate(protos, gen)
        proto.check(protos, gen)
        (gen / "chatmind/scratch/v1/scratch_pb2.pyi").unlink()
        write(gen / "chatmind/scratch/v1/scratch_pb2.py", "edited = True\n")
        write(gen / "chatmind/scratch/v1/old_pb2.py")

        with pytest.raises(proto.ToolError) as caught:
            proto.check(protos, gen)

        assert str(caught.value).splitlines() == [
            "the stubs are not fresh, run `make proto`:",
            "  left over  chatmind/scratch/v1/old_pb2.py",
            "  stale      chatmind/scratch/v1/scratch_pb2.py",
            "  missing    chatmind/scratch/v1/scratch_pb2.pyi",
        ]

    def test_generating_again_removes_what_is_left_over(self, tmp_path: Path) -> None:
        protos, gen = write_scratch(tmp_path / "protos"), tmp_path / "gen"
        write(gen / "chatmind/scratch/v1/old_pb2.py")

        proto.generate(protos, gen)

        proto.check(protos, gen)

    def test_a_contract_that_does_not_compile_says_where(self, tmp_path: Path) -> None:
        protos = write_scratch(tmp_path / "protos", "syntax = 'proto3';\nmessage A { B b = 1; }\n")

        with pytest.raises(proto.ToolError, match=r'scratch\.proto:2:13: "B" is not defined'):
            proto.generate(protos, tmp_path / "gen")
