"""Which MCP servers there are: CHATMIND_MCP_FILE. Nobody but the operator can declare one.

[servers.files]                                  # the name that agents are given it by
command = "files-server"                         # a program that the agent service runs
args = ["--root", "/srv/files"]
env = ["FILES_TOKEN"]                            # variables that it gets; of the others, none
timeout_seconds = 30                             # how long one call is waited for
tools = ["read_file", "write_file"]              # the only ones of its tools; all if left out
read_only = ["read_file"]                        # those that change nothing

[servers.tracker]
url = "https://tracker.example.com/mcp"          # or: a server that runs elsewhere
headers = { X-Team = "support" }
header_env = { Authorization = "TRACKER_AUTHORIZATION" }   # the variable that holds the value
"""

import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, TypeAlias
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints
from pydantic_core import ErrorDetails

from services.agent.clients.settings_file import Strict, read_settings_file, reason_of
from services.agent.domain.mcp.models import McpDeclaration, McpTransport
from services.common.errors import StartupError

_Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$")]
_Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=200)]
_Url = Annotated[str, StringConstraints(pattern=r"^https?://[^\s/]+\S*$", max_length=2000)]
_Header = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$", max_length=200)
]
_Value = Annotated[str, StringConstraints(pattern=r"^[\x20-\x7e]*$", max_length=8192)]
_Tool = Annotated[str, StringConstraints(min_length=1, max_length=128)]
_Argument = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", max_length=8192)]

# What models call other agents by begins with it.
_KEPT_NAME: Final = "ask"

# Those that the protocol, or HTTP, needs for itself.
_OWN_HEADERS: Final = {
    "accept",
    "accept-encoding",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "transfer-encoding",
}


class McpFileError(StartupError):
    """What is wrong with the configuration of MCP servers, as one line for an operator."""


@dataclass(frozen=True, slots=True)
class StdioSettings:
    """A server that is a program.

    Attributes:
        command: the program's path.
        args: its arguments.
        environment: variables that it gets besides a few that every program needs.
    """

    command: str
    args: tuple[str, ...] = field(default=(), repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """A server at an address.

    Attributes:
        url: where it answers.
        headers: what it is sent with each request, credentials among them.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


Reach: TypeAlias = StdioSettings | HttpSettings


@dataclass(frozen=True, slots=True)
class McpServerSettings:
    """One server.

    Attributes:
        declaration: what the domain knows of it.
        reach: how it is reached.
        timeout_seconds: how long one call is waited for.
    """

    declaration: McpDeclaration
    reach: Reach
    timeout_seconds: float = 30.0


def load_mcp_servers(
    path: Path | None, environ: Mapping[str, str]
) -> tuple[McpServerSettings, ...]:
    """The servers that are declared, sorted by name; none at all is no error.

    Args:
        path: the file; None where there is none.
        environ: the environment; an empty variable counts as unset.

    Raises:
        McpFileError: the file cannot be read, or something in it or in a variable is wrong.
    """
    if path is None:
        return ()
    servers = read_settings_file(path, _File, error=McpFileError, reason=_reason).servers
    faults = [
        f"{path}: servers.{name}: {fault}"
        for name, server in servers.items()
        for fault in _faults(server, environ)
    ]
    if _KEPT_NAME in servers:
        faults.append(f"{path}: servers.{_KEPT_NAME}: tools of agents have names like that")
    if faults:
        raise McpFileError("; ".join(faults))
    return tuple(_settings(name, servers[name], environ) for name in sorted(servers))


class _Server(Strict):
    command: _Argument | None = None
    args: tuple[_Argument, ...] = Field(default=(), max_length=100)
    env: tuple[_Variable, ...] = Field(default=(), max_length=100)
    url: _Url | None = None
    headers: dict[_Header, _Value] = Field(default_factory=dict, max_length=32)
    header_env: dict[_Header, _Variable] = Field(default_factory=dict, max_length=32)
    timeout_seconds: float = Field(default=30.0, gt=0, le=3600)
    tools: tuple[_Tool, ...] | None = Field(default=None, max_length=128)
    read_only: tuple[_Tool, ...] = Field(default=(), max_length=128)


class _File(Strict):
    servers: dict[_Name, _Server] = Field(min_length=1, max_length=64)


def _reason(problem: ErrorDetails) -> str:
    if problem["loc"][-1] == "[key]" and len(problem["loc"]) == 3:
        return 'the name must be of lower-case letters, digits and "-", at most 32'
    return reason_of(problem)


def _faults(server: _Server, environ: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with a server beyond the form of each key."""
    if (server.command is None) == (server.url is None):
        yield "needs either command or url"
        return
    foreign = ("headers", "header_env") if server.command is not None else ("args", "env")
    for key in sorted(server.model_fields_set & {*foreign}):
        yield f"{key}: does not go with {'command' if server.command is not None else 'url'}"
    if server.command is not None and shutil.which(server.command, path=_path(environ)) is None:
        yield f"command: there is no program {server.command!r}"
    if server.url is not None:
        yield from _faults_of_url(server.url)
    yield from _faults_of_headers(server, environ)
    yield from (f"env: the variable {name} is not set" for name in _unset(server.env, environ))
    allowed = None if server.tools is None else {*server.tools}
    for tool in server.read_only:
        if allowed is not None and tool not in allowed:
            yield f"read_only: {tool!r} is not among its tools"


def _faults_of_url(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
        known = bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known:
        yield "url: must be an http:// or https:// address"
    elif parts.username is not None or parts.password is not None:
        yield "url: must not hold credentials; header_env takes them from a variable"


def _faults_of_headers(server: _Server, environ: Mapping[str, str]) -> Iterator[str]:
    for name in (*server.headers, *server.header_env):
        if name.lower() in _OWN_HEADERS or name.lower().startswith("mcp-"):
            yield f"headers: {name} is set by the protocol"
    for variable in _unset(server.header_env.values(), environ):
        yield f"header_env: the variable {variable} is not set"
    for name, variable in server.header_env.items():
        value = environ.get(variable, "")
        if not (value.isascii() and value.isprintable()):
            yield f"header_env: what the variable {variable} holds cannot be a header ({name})"


def _unset(variables: Iterable[str], environ: Mapping[str, str]) -> list[str]:
    return [name for name in variables if not environ.get(name)]


def _settings(name: str, server: _Server, environ: Mapping[str, str]) -> McpServerSettings:
    reach: Reach
    if server.command is not None:
        path = _path(environ)
        found = shutil.which(server.command, path=path) or server.command
        reach = StdioSettings(
            # It starts in another folder than this process.
            str(Path(found).absolute()),
            server.args,
            {"PATH": path, **{variable: environ[variable] for variable in server.env}},
        )
    else:
        credentials = {key: environ[variable] for key, variable in server.header_env.items()}
        reach = HttpSettings(server.url or "", {**server.headers, **credentials})
    stdio = server.command is not None
    declaration = McpDeclaration(
        name,
        McpTransport.STDIO if stdio else McpTransport.HTTP,
        None if server.tools is None else frozenset(server.tools),
        frozenset(server.read_only),
    )
    return McpServerSettings(declaration, reach, server.timeout_seconds)


def _path(environ: Mapping[str, str]) -> str:
    """Where programs are looked for; a program that is a script needs it too."""
    return environ.get("PATH") or "/usr/local/bin:/usr/bin:/bin"
