"""`chatmind` itself: the tree of its commands."""

import typer

from cli.commands import agent, chat, kb, key, up

app = typer.Typer(
    help="ChatMind: agents that think, use tools and look things up in your documents.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("up")(up.up)
app.command("chat")(chat.chat)
app.add_typer(kb.app, name="kb")
app.add_typer(agent.app, name="agent")
app.add_typer(key.app, name="key")
