"""Gives every call an id that its logs, its errors and the calls it makes inward carry."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

import structlog

from services.common.ids import NewId
from services.common.interceptors.base import AroundInterceptor, Call

REQUEST_ID_KEY = "x-request-id"

_WELL_FORMED = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_request_id: ContextVar[str] = ContextVar("request_id", default="")


def current_request_id() -> str:
    """The id of the call being answered; empty outside of one."""
    return _request_id.get()


class RequestIdInterceptor(AroundInterceptor):
    """Takes the caller's id where it is well formed, else makes one."""

    def __init__(self, new_id: NewId) -> None:
        self._new_id = new_id

    @asynccontextmanager
    async def around(self, call: Call) -> AsyncIterator[None]:
        """The call with its id bound to logs and to `current_request_id`."""
        given = call.metadata.get(REQUEST_ID_KEY)
        well_formed = isinstance(given, str) and _WELL_FORMED.fullmatch(given)
        request_id = given if well_formed and isinstance(given, str) else self._new_id()
        _request_id.set(request_id)
        structlog.contextvars.bind_contextvars(request_id=request_id, rpc=call.method)
        yield
