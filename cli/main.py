"""The entry point of the `chatmind` command."""

import os
import signal


def main() -> None:
    """Run the command line."""
    # grpc reads this when it is loaded, hence the imports below. Its core would otherwise log on
    # stderr, where only the person at the terminal reads.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # Whoever interrupts the start has no use for the stack of an import.
    on_interrupt = signal.getsignal(signal.SIGINT)
    if on_interrupt is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from cli.app import run
    from cli.commands.root import app

    signal.signal(signal.SIGINT, on_interrupt)
    run(app)


if __name__ == "__main__":
    main()
