"""`chatmind` itself: the tree of its commands."""

from importlib.metadata import version
from typing import Annotated

import typer

from cli.commands import agent, chat, kb, key, mcp, run, session, up

app = typer.Typer(
    help="ChatMind: agents that think, use tools and look things up in your documents.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("up")(up.up)
app.command("chat")(chat.chat)
app.add_typer(kb.app, name="kb")
app.add_typer(agent.app, name="agent")
app.add_typer(mcp.app, name="mcp")
app.add_typer(session.app, name="session")
app.add_typer(run.app, name="run")
app.add_typer(key.app, name="key")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"chatmind {version('chatmind')}")
        raise typer.Exit


@app.callback()
def chatmind(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """The options that come before any command."""
