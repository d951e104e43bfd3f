"""The entry point of the `chatmind` command."""

import os


def main() -> None:
    """Run the command line."""
    # grpc reads this when it is loaded, hence the imports below. Its core would otherwise log on
    # stderr, where only the person at the terminal reads.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from cli.app import run
    from cli.commands.root import app

    run(app)


if __name__ == "__main__":
    main()
