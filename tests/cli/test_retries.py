"""Streams that break."""

import time

import grpc
import pytest

from cli.errors import CommandError
from cli.retries import Retries


class Broken(grpc.RpcError):
    """The error of a call that failed with this code."""

    def __init__(self, code: grpc.StatusCode) -> None:
        super().__init__()
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code


UNAVAILABLE = Broken(grpc.StatusCode.UNAVAILABLE)


class TestWait:
    @pytest.mark.parametrize("code", ["UNAVAILABLE", "ABORTED", "RESOURCE_EXHAUSTED"])
    def test_what_passes_is_borne_as_often_as_agreed(self, code: str) -> None:
        retries, error = Retries(attempts=3, pause=0), Broken(grpc.StatusCode[code])
        for _ in range(3):
            retries.wait(error)

        with pytest.raises(Broken) as caught:
            retries.wait(error)
        assert caught.value is error

    @pytest.mark.parametrize("code", ["NOT_FOUND", "UNAUTHENTICATED", "INTERNAL", "CANCELLED"])
    def test_what_does_not_pass_is_raised_at_once(self, code: str) -> None:
        with pytest.raises(Broken):
            Retries(pause=0).wait(Broken(grpc.StatusCode[code]))

    def test_a_stream_that_just_ends_is_borne_no_longer(self) -> None:
        retries = Retries(attempts=2, pause=0)
        retries.wait(None)
        retries.wait(None)

        with pytest.raises(CommandError):
            retries.wait(None)

    def test_what_comes_through_renews_it(self) -> None:
        retries = Retries(attempts=1, pause=0)
        for _ in range(5):
            retries.wait(UNAVAILABLE)
            retries.reset()

    def test_it_waits_a_moment_that_differs_each_time(self) -> None:
        retries, waits = Retries(pause=0.05), []
        for _ in range(5):
            started = time.monotonic()
            retries.wait(UNAVAILABLE)
            waits.append(time.monotonic() - started)

        assert min(waits) >= 0.025
        assert max(waits) - min(waits) > 0.001
