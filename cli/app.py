"""What the commands share: the options for server, key and output, and the report of failures."""

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec

import grpc
import typer

from cli.client import DEFAULT_SERVER, Gateway, connect, failed_call, read_key
from cli.errors import CommandError
from cli.local.errors import LocalError
from cli.output import Output
from services.common.status import RpcFailure, failure_of

P = ParamSpec("P")


def _options(
    *,
    server: Annotated[
        str,
        typer.Option("--server", envvar="CHATMIND_SERVER", help="The gateway's gRPC address."),
    ] = DEFAULT_SERVER,
    key_file: Annotated[
        Path | None,
        typer.Option("--key-file", help="File with the API key; CHATMIND_API_KEY does as well."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")] = False,
) -> None:
    """The options that `remote` adds to a command."""


def remote(command: Callable[Concatenate[Gateway, Output, P], None]) -> Callable[..., None]:
    """Turn a function that talks to a gateway into a command.

    The command takes the function's parameters after the first two, and the options for server, key
    and output. Failures are reported, and end it with status 1.
    """

    @functools.wraps(command)
    def wrapper(
        *args: Any, server: str, key_file: Path | None, as_json: bool, **kwargs: Any
    ) -> None:
        output = Output(as_json=as_json)
        with reported(output, server), connect(server, read_key(key_file)) as gateway:
            command(gateway, output, *args, **kwargs)

    own = list(inspect.signature(command).parameters.values())[2:]
    added = list(inspect.signature(_options).parameters.values())
    wrapper.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]  # typer reads it
    wrapper.__annotations__ = {p.name: p.annotation for p in [*own, *added]}
    return wrapper


@contextmanager
def reported(output: Output, server: str = DEFAULT_SERVER) -> Iterator[None]:
    """Report failures of calls to `server` and of commands, then end the command with status 1."""
    try:
        yield
    except grpc.RpcError as error:
        output.failure(_readable(failure_of(failed_call(error)), server))
        raise typer.Exit(1) from error
    except (CommandError, LocalError) as error:
        output.error(str(error))
        raise typer.Exit(1) from error
    except UnicodeError as error:
        output.error("the arguments are not UTF-8 text")
        raise typer.Exit(1) from error


def confirm(output: Output, question: str) -> None:
    """Continue only if the person says yes; the question does not appear on stdout.

    Raises:
        Abort: the answer is anything else.
    """
    if output.ask(f"{question} [y/N]: ").strip().lower() not in {"y", "yes"}:
        raise typer.Abort


def _readable(failure: RpcFailure, server: str) -> RpcFailure:
    """The failure in words for a person, if grpc reported it rather than the gateway."""
    words = {
        grpc.StatusCode.UNAVAILABLE: (
            f"no ChatMind answers at {server}; start it with `chatmind up`, or name another with "
            "--server or CHATMIND_SERVER"
        ),
        grpc.StatusCode.DEADLINE_EXCEEDED: f"{server} took too long to answer",
        grpc.StatusCode.UNIMPLEMENTED: f"{server} is not a gateway of this release of ChatMind",
    }
    if failure.reason or failure.code not in words:
        return failure
    return replace(failure, message=words[failure.code])


def run(app: Callable[[], None]) -> None:
    """Run the command line; Ctrl-C ends it quietly with status 130."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Characters that the terminal's encoding lacks are shown as question marks.
            stream.reconfigure(errors="replace")
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
