"""What failed calls say."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from grpc import StatusCode, aio

from services.common.status import RpcFailure, failure_of


@dataclass
class Refusal:
    """What a call was refused with, once it was."""

    failure: RpcFailure | None = None

    @property
    def told(self) -> RpcFailure:
        """What it said."""
        assert self.failure is not None
        return self.failure

    @property
    def fields(self) -> list[str]:
        """The fields it names."""
        return [violation.field for violation in self.told.violations]


@contextmanager
def refused(code: StatusCode, reason: str) -> Iterator[Refusal]:
    """Expect that the call in the block is refused so."""
    refusal = Refusal()
    with pytest.raises(aio.AioRpcError) as caught:
        yield refusal
    refusal.failure = failure_of(caught.value)
    assert (code, reason) == (refusal.failure.code, refusal.failure.reason)
