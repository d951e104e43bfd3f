"""Errors of the parts that run on this machine."""


class LocalError(Exception):
    """A local part cannot do its work; the message is for the person at the terminal."""


class AlreadyRunningError(LocalError):
    """Another process supervises this data directory."""


class StartError(LocalError):
    """A local part did not start, or keeps ending."""


class EndedError(StartError):
    """A local part ended instead of coming up."""
