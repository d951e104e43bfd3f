"""The errors that commands report to the person at the terminal."""


class CommandError(Exception):
    """A command cannot do its work; the message is one line."""
