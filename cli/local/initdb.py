"""Creates a PostgreSQL cluster."""

import os
import shutil
from pathlib import Path

from cli.local.errors import StartError
from cli.local.launch import Launch, hand_over
from cli.local.programs import Programs

_OPTIONS = (
    "--username=postgres",
    "--encoding=UTF8",
    "--locale=C.UTF-8",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    "--auth=scram-sha-256",
    "--data-checksums",
)


async def create_cluster(
    cluster: Path, password: str, *, programs: Programs, launch: Launch, sync: bool
) -> None:
    """Create the cluster beside its place and move it there, so that a crash leaves no half one.

    Raises:
        StartError: initdb failed; see the log.
    """
    draft = cluster.with_name(cluster.name + ".new")
    if draft.exists():
        shutil.rmtree(draft)
    made, password_file = draft / "cluster", draft / "password"
    made.mkdir(mode=0o700, parents=True)
    draft.chmod(0o700)
    password_file.touch(mode=0o600)
    password_file.write_text(password, encoding="ascii")
    hand_over(draft, launch)

    options = [*_OPTIONS, f"--pwfile={password_file}", *([] if sync else ["--no-sync"])]
    code = await programs.run(launch, "initdb", "-D", str(made), *options)
    if code != 0:
        raise StartError(f"initdb ended with exit code {code}; see the log")
    made.rename(cluster)
    _sync(cluster.parent)
    shutil.rmtree(draft)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
