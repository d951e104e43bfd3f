"""What the commands report to the person at the terminal."""


class CommandError(Exception):
    """A command cannot do what was asked; the message is one line."""
