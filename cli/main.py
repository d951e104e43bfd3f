"""The entry point of the `chatmind` command."""

import os


def main() -> None:
    """Runs the command line."""
    # The core of grpc reads this when it is loaded, hence the imports below: what it would write to
    # stderr is not for the person at the terminal.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from cli.app import run
    from cli.commands.root import app

    run(app)


if __name__ == "__main__":
    main()
