"""Retries of streams and calls that break."""

import time

import grpc

from cli.client import failed_call
from cli.errors import CommandError
from services.common.backoff import jittered

# The gateway restarts or is overloaded; with any other code a retry would only fail again.
_TRANSIENT = {
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAVAILABLE,
}


class Retries:
    """Limits how often in a row something is retried."""

    def __init__(self, *, attempts: int = 10, pause: float = 0.5) -> None:
        """Start with no failure counted.

        Args:
            attempts: how often in a row to retry.
            pause: seconds before each retry, more or less: those who were cut off together must
                not come back together.
        """
        self._attempts = attempts
        self._pause = pause
        self._failures = 0

    def reset(self) -> None:
        """Forget the failures, after something came through."""
        self._failures = 0

    def wait(self, error: grpc.RpcError | None) -> None:
        """Count a failure and wait for the next attempt.

        Args:
            error: what failed; None if a stream ended too early without an error.

        Raises:
            RpcError: the error itself, if a retry would not help or there were too many.
            CommandError: the stream ended too often.
        """
        self._failures += 1
        exhausted = self._failures > self._attempts
        if error is not None and (exhausted or failed_call(error).code() not in _TRANSIENT):
            raise error
        if exhausted:
            raise CommandError("the gateway keeps ending the stream; try again later")
        time.sleep(jittered(self._pause))
