"""How long a stream that breaks is taken up again."""

import time

import grpc

from cli.client import failed_call
from cli.errors import CommandError

# A gateway that restarts or is overrun; anything else would only fail again.
_PASSING = {
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAVAILABLE,
}


class Patience:
    """Counts how often in a row a stream broke."""

    def __init__(self, *, attempts: int = 10, pause: float = 0.5) -> None:
        """Starts afresh.

        Args:
            attempts: how often in a row it may break.
            pause: seconds before it is taken up again.
        """
        self._attempts = attempts
        self._pause = pause
        self._broken = 0

    def renew(self) -> None:
        """Notes that something came through."""
        self._broken = 0

    def spend(self, error: grpc.RpcError | None) -> None:
        """Waits a moment after the stream broke, or just ended too early.

        Raises:
            RpcError: the error itself, where it does not pass by waiting or came too often.
            CommandError: the stream ended too often.
        """
        self._broken += 1
        exhausted = self._broken > self._attempts
        if error is not None and (exhausted or failed_call(error).code() not in _PASSING):
            raise error
        if exhausted:
            raise CommandError("the gateway keeps ending the stream; try again later")
        time.sleep(self._pause)
