"""`chatmind up`: runs everything on this machine."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from cli.app import reported
from cli.client import DEFAULT_DATA_DIR
from cli.output import Output


def up(
    data_dir: Annotated[
        Path,
        typer.Option(
            "--data-dir",
            envvar="CHATMIND_DATA_DIR",
            help="Where the database, the keys and the logs are kept.",
        ),
    ] = DEFAULT_DATA_DIR,
) -> None:
    """Start the database and the four services; Ctrl-C stops them."""
    # Imported here because it takes half a second, which other commands can save.
    from cli.local.up import run_everything

    output = Output(as_json=False)
    with reported(output):
        asyncio.run(run_everything(data_dir.absolute(), output))
