"""Gives every call an id, carried by its logs, its errors and the calls it makes in turn."""

import re
from contextvars import ContextVar

import structlog

from services.common.ids import NewId
from services.common.interceptors.base import AdmittingInterceptor, Call

REQUEST_ID_KEY = "x-request-id"

_WELL_FORMED = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_request_id: ContextVar[str] = ContextVar("request_id", default="")


def current_request_id() -> str:
    """The id of the present call; empty outside of one."""
    return _request_id.get()


class RequestIdInterceptor(AdmittingInterceptor):
    """Takes the caller's id if it is well formed, otherwise makes one."""

    def __init__(self, new_id: NewId) -> None:
        self._new_id = new_id

    async def admit(self, call: Call) -> None:
        """Bind the call's id to logs and to `current_request_id`."""
        request_id = call.metadata.get(REQUEST_ID_KEY)
        if not (isinstance(request_id, str) and _WELL_FORMED.fullmatch(request_id)):
            request_id = self._new_id()
        _request_id.set(request_id)
        structlog.contextvars.bind_contextvars(request_id=request_id, rpc=call.method)
