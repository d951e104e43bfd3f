"""Limits how many calls run at once, per kind, so that no kind can crowd out another."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from services.common.interceptors.base import AdmittingInterceptor, Call
from services.gateway.api.authentication import current_key
from services.gateway.api.methods import Method
from services.gateway.domain.limits import ConcurrencyLimit


@dataclass(frozen=True, slots=True)
class CallLimits:
    """The limit for each kind of call.

    Attributes:
        calls: one request, one answer.
        uploads: requests that come as a stream.
        streams: answers that go out as a stream.
    """

    calls: ConcurrencyLimit
    uploads: ConcurrencyLimit
    streams: ConcurrencyLimit

    def open_calls(self) -> Mapping[str, int]:
        """How many calls of each kind are running now."""
        return {each.kind: each.open for each in (self.calls, self.uploads, self.streams)}

    def of(self, method: Method) -> ConcurrencyLimit:
        """The limit that a method's calls count against."""
        if method.streams_out:
            return self.streams
        return self.uploads if method.streams_in else self.calls


class LimitsInterceptor(AdmittingInterceptor):
    """Refuses a call at once if its limit is reached; runs after authentication."""

    def __init__(self, methods: Iterable[Method], limits: CallLimits) -> None:
        self._limits = {method.path: limits.of(method) for method in methods}

    async def admit(self, call: Call) -> None:
        """Count the call until its last byte is sent, not just written."""
        limit = self._limits.get(call.method)
        if limit is not None:
            key_id = current_key().id
            limit.acquire(key_id)
            call.context.add_done_callback(
                lambda _: limit.release(key_id)  # type: ignore[arg-type]  # stubs want a class
            )
