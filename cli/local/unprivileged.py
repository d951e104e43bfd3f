"""Starts a PostgreSQL program that must not see itself as root, and ties it to its parent.

Run as a script (`python -I -S unprivileged.py WAY USER GROUP PARENT PROGRAM ARGUMENT...`), it
becomes PROGRAM, so the process id stays. PostgreSQL refuses to run as user id 0, and initdb wants
the id to have a name. Both are satisfied without loosening permissions or creating accounts:

`namespace` maps the present user to USER in a new user namespace. The kernel still checks files
against the real user, so the data directory and the binaries may be anywhere that user can reach,
even below a 0700 home, and all files stay owned by that user. Outside the namespace the program has
no capability; but like everything that root starts, it can reach what root owns, and so can the
database's superuser. Many containers forbid namespaces; the exit code is then `EXIT_FORBIDDEN`.

`user` becomes USER for good: for those containers, and for a cluster that belongs to somebody else.
If that user cannot reach the program or the data (root's 0700 home), it keeps CAP_DAC_OVERRIDE, so
that permission bits are ignored rather than changed; otherwise it keeps nothing.

`self` starts the program as it is.

In each case the kernel sends the program SIGINT, PostgreSQL's fast shutdown, when the thread that
started it ends for whatever reason (on Linux; elsewhere the next start deals with it).
"""

import ctypes
import os
import signal
import sys

EXIT_FORBIDDEN = 78
"""Exit code if this way of starting is not permitted."""

_CLONE_NEWUSER = 0x10000000
_PR_SET_PDEATHSIG = 1
_PR_SET_SECUREBITS = 28
_SECBIT_NO_SETUID_FIXUP = 4
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_CAP_DAC_OVERRIDE = 1
_CAPABILITY_VERSION_3 = 0x20080522


def main(arguments: list[str]) -> None:
    """Become the program, or end with `EXIT_FORBIDDEN`."""
    way, (user, group, parent), command = arguments[0], map(int, arguments[1:4]), arguments[4:]
    try:
        if way == "namespace":
            _enter_namespace(user, group)
        elif way == "user":
            _become(user, group, needs=(command[0], command[command.index("-D") + 1]))
        if sys.platform == "linux":
            _call("prctl", _PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0)
    except OSError as error:
        sys.stderr.write(f"{way}: {error}\n")
        sys.exit(EXIT_FORBIDDEN)
    if os.getppid() != parent:
        sys.exit("the parent is gone")
    os.execv(command[0], command)  # noqa: S606


def _enter_namespace(user: int, group: int) -> None:
    maps = {
        "setgroups": b"deny",
        "uid_map": b"%d %d 1" % (user, os.geteuid()),
        "gid_map": b"%d %d 1" % (group, os.getegid()),
    }
    _call("unshare", _CLONE_NEWUSER)
    for name, text in maps.items():
        with open(f"/proc/self/{name}", "wb") as file:  # noqa: PTH123
            file.write(text)


def _become(user: int, group: int, *, needs: tuple[str, str]) -> None:
    may_keep = sys.platform == "linux" and _keep_capabilities_over_setuid()
    os.setgroups([])
    os.setgid(group)
    os.setuid(user)
    if may_keep:
        _set_capabilities(permitted=1 << _CAP_DAC_OVERRIDE, effective=0)
    reachable = all(os.access(path, os.R_OK | os.X_OK) for path in needs)
    if may_keep and reachable:
        _set_capabilities(permitted=0, effective=0)
    elif may_keep:
        _set_capabilities(permitted=1 << _CAP_DAC_OVERRIDE, effective=1 << _CAP_DAC_OVERRIDE)
        _call("prctl", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_OVERRIDE, 0, 0)
    elif not reachable:
        raise PermissionError(f"user {user} cannot reach {' and '.join(needs)}")


def _keep_capabilities_over_setuid() -> bool:
    """Whether capabilities now survive setuid and count in access(2), which PostgreSQL asks."""
    try:
        _call("prctl", _PR_SET_SECUREBITS, _SECBIT_NO_SETUID_FIXUP, 0, 0, 0)
    except PermissionError:
        return False
    return True


def _set_capabilities(*, permitted: int, effective: int) -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)(effective, permitted, permitted, 0, 0, 0)
    _call("capset", header, data)


def _call(name: str, *arguments: object) -> None:
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    if function(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


if __name__ == "__main__":
    main(sys.argv[1:])
