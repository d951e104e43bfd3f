"""Generates the stubs in `gen/` from the contract in `protos/`, and checks both.

    python tools/proto.py generate   write the stubs
    python tools/proto.py check      fail if the stubs differ from what `generate` would write
    python tools/proto.py lint       fail if the contract breaks a rule of `protos/buf.yaml`
    python tools/proto.py breaking   fail if the contract breaks clients of the last release

Everything runs offline with what the `dev` extra installs. No wheel ships
`buf/validate/validate.proto`, so protoc gets its descriptor from protovalidate's generated module,
which is one reason why these versions are pinned exactly.
"""

import argparse
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import distribution, version
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from protobuf import DescFile
from protovalidate._gen.buf.validate import validate_pb

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
GEN = ROOT / "gen"
PINS = {
    "buf-bin": "1.75.0",
    "grpcio-tools": "1.85.1",
    "mypy-protobuf": "5.1.0",
    "protovalidate": "2.1.0",
}
PACKAGES = ("buf", "chatmind")
MESSAGES = ("--python_out=", "--mypy_out=quiet:")
SERVICES = ("--grpc_python_out=", "--mypy_grpc_out=quiet:")


class ToolError(Exception):
    """A failure; its message is for the person at the terminal."""


def generate(protos: Path, gen: Path) -> None:
    """Replace the packages below `gen` with stubs of the contract below `protos`."""
    with tempfile.TemporaryDirectory() as scratch:
        fresh = compile_stubs(protos, Path(scratch))
        for package in PACKAGES:
            shutil.rmtree(gen / package, ignore_errors=True)
            shutil.copytree(fresh / package, gen / package)


def check(protos: Path, gen: Path) -> None:
    """Compare the packages below `gen` with freshly made stubs."""
    with tempfile.TemporaryDirectory() as scratch:
        stale = list(differences(gen, compile_stubs(protos, Path(scratch))))
    if stale:
        raise ToolError("\n".join(["the stubs are not fresh, run `make proto`:", *stale]))


def lint(protos: Path) -> None:
    """Check the contract against the lint rules of its `buf.yaml`."""
    with tempfile.TemporaryDirectory() as scratch:
        image = build_image(protos, Path(scratch, "contract.binpb"))
        buf("lint", str(image), "--config", str(protos / "buf.yaml"))


def breaking(protos: Path, repository: Path) -> str:
    """Check that the contract is compatible with the last release.

    Returns:
        The tag compared with, or an empty text where `repository` has no release yet.
    """
    tag = last_release(repository)
    if tag:
        with tempfile.TemporaryDirectory() as scratch:
            released = release_protos(repository, tag, into=Path(scratch))
            before = build_image(released, Path(scratch, "before.binpb"))
            after = build_image(protos, Path(scratch, "after.binpb"))
            config = str(protos / "buf.yaml")
            buf("breaking", str(after), "--against", str(before), "--config", config)
    return tag


def last_release(repository: Path) -> str:
    """The highest `v*` tag that leads to HEAD, or an empty text."""
    if not (repository / ".git").exists():
        return ""
    listing = ["tag", "--list", "v*", "--merged", "HEAD", "--sort=-version:refname"]
    return next(iter(git(repository, *listing).decode().split()), "")


def release_protos(repository: Path, tag: str, *, into: Path) -> Path:
    """Unpack the contract as it was at `tag`."""
    archive = git(repository, "archive", "--format=tar", tag, "protos")
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(into, filter="data")
    return into / "protos"


def compile_stubs(protos: Path, out: Path) -> Path:
    """Write the Python modules, their types and the gRPC ones of the contract into `out`."""
    protoc(protos, [f"{flag}{out}" for flag in MESSAGES], [validate_pb.desc().name])
    protoc(protos, [f"{flag}{out}" for flag in MESSAGES + SERVICES], sources(protos))
    return out


def build_image(protos: Path, image: Path) -> Path:
    """Write the contract with its imports and comments as the descriptor set that buf reads."""
    flags = ["--include_imports", "--include_source_info", f"--descriptor_set_out={image}"]
    protoc(protos, flags, sources(protos))
    return image


def sources(protos: Path) -> list[str]:
    """Every proto file, relative to `protos`, in an order that is the same on every machine."""
    found = sorted(path.relative_to(protos).as_posix() for path in protos.rglob("*.proto"))
    if not found:
        raise ToolError(f"no .proto file below {protos}")
    return found


def differences(committed: Path, fresh: Path) -> Iterator[str]:
    """One line for each file that is stale, missing or left over in `committed`."""
    old, new = stub_files(committed), stub_files(fresh)
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield f"  left over  {name}"
        elif name not in old:
            yield f"  missing    {name}"
        elif old[name].read_bytes() != new[name].read_bytes():
            yield f"  stale      {name}"


def stub_files(gen: Path) -> dict[str, Path]:
    """The stub files below `gen` by their relative name."""
    found = [path for package in PACKAGES for path in (gen / package).rglob("*.py*")]
    return {path.relative_to(gen).as_posix(): path for path in found if path.suffix != ".pyc"}


def protoc(protos: Path, flags: Sequence[str], files: Sequence[str]) -> None:
    """Run protoc over `files`, which may import the validation rules and Google's common protos."""
    common = distribution("googleapis-common-protos").locate_file("")
    with tempfile.TemporaryDirectory() as scratch:
        rules = Path(scratch, "validate.binpb")
        rules.write_bytes(descriptor_set(validate_pb.desc()))
        paths = [f"--proto_path={protos}", f"--proto_path={common}", f"--descriptor_set_in={rules}"]
        run(sys.executable, "-m", "grpc_tools.protoc", *paths, *flags, *files)


def descriptor_set(file: DescFile) -> bytes:
    """A serialized set of `file` preceded by what it imports."""
    found: dict[str, bytes] = {}

    def visit(each: DescFile) -> None:
        for dependency in each.dependencies:
            visit(dependency)
        found[each.name] = each.proto.to_binary()

    visit(file)
    files = FileDescriptorSet()
    for serialized in found.values():
        files.file.add().ParseFromString(serialized)
    return files.SerializeToString(deterministic=True)


def buf(*arguments: str) -> None:
    """Run buf; its own messages are meant for people."""
    run(str(scripts() / "buf"), *arguments)


def git(repository: Path, *arguments: str) -> bytes:
    """Run git in `repository`, whoever owns it: a clone for CI often belongs to another user."""
    return run("git", "-c", f"safe.directory={repository}", "-C", str(repository), *arguments)


def scripts() -> Path:
    """Where the commands of this interpreter's environment live."""
    return Path(sys.executable).parent


def run(*command: str) -> bytes:
    """Run a command and return its output.

    Raises:
        ToolError: it failed; the message is what it printed.
    """
    environment = os.environ | {"PATH": os.pathsep.join([str(scripts()), os.environ["PATH"]])}
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).decode(errors="replace").strip()
        raise ToolError(said or f"{command[0]} ended with status {done.returncode}")
    return done.stdout


def assert_versions() -> None:
    """Check that the generators are those that made the committed stubs.

    Raises:
        ToolError: at least one has another version.
    """
    found = {name: version(name) for name in PINS}
    if found != PINS:
        wrong = [
            f"  {name} {found[name]}, not {PINS[name]}"
            for name in PINS
            if found[name] != PINS[name]
        ]
        raise ToolError("\n".join(["the generators differ from their pins:", *wrong]))


def act(command: str) -> str:
    """Run one command on this repository and return its result in words."""
    if command == "generate":
        generate(PROTOS, GEN)
        return f"{len(stub_files(GEN))} stub files written"
    if command == "check":
        check(PROTOS, GEN)
        return "the stubs are fresh"
    if command == "lint":
        lint(PROTOS)
        return "the contract is clean"
    tag = breaking(PROTOS, ROOT)
    return f"compatible with {tag}" if tag else "no release tag yet, nothing to be compatible with"


def main() -> int:
    """Run the command named on the command line."""
    parser = argparse.ArgumentParser(description="Stubs and rules of the gRPC contract.")
    parser.add_argument("command", choices=["generate", "check", "lint", "breaking"])
    command = parser.parse_args().command
    try:
        assert_versions()
        print(act(command))
    except ToolError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
