"""What can go wrong with the parts that run on this machine."""


class LocalError(Exception):
    """A local part cannot do its work; the message is one line for the person at the terminal."""


class AlreadyRunningError(LocalError):
    """Another process supervises this data directory."""


class StartError(LocalError):
    """A local part did not start in time or gave up."""


class EndedError(StartError):
    """A local part ended instead of coming up."""
