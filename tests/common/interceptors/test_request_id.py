"""The id of a call."""

import asyncio
import itertools
from typing import Any

import pytest
import structlog

from services.common.interceptors.request_id import (
    REQUEST_ID_KEY,
    RequestIdInterceptor,
    current_request_id,
)
from tests.calls import unary_unary
from tests.common.serving import METHOD, serving


async def tell(request: bytes, context: Any) -> bytes:
    return current_request_id().encode()


@pytest.fixture
def interceptor() -> RequestIdInterceptor:
    numbers = itertools.count(1)
    return RequestIdInterceptor(lambda: f"made-{next(numbers)}")


class TestRequestId:
    async def test_the_callers_id_is_kept(self, interceptor: RequestIdInterceptor) -> None:
        async with serving(tell, interceptor) as channel:
            sent = ((REQUEST_ID_KEY, "0190a5b8-7.a:b_c"),)

            assert await unary_unary(channel, METHOD)(b"", metadata=sent) == b"0190a5b8-7.a:b_c"

    @pytest.mark.parametrize("given", ["", "a b", "x" * 65, "a/b", '"'])
    async def test_a_malformed_one_is_replaced(
        self, interceptor: RequestIdInterceptor, given: str
    ) -> None:
        async with serving(tell, interceptor) as channel:
            sent = ((REQUEST_ID_KEY, given),)

            assert await unary_unary(channel, METHOD)(b"", metadata=sent) == b"made-1"

    async def test_calls_of_one_connection_do_not_share_an_id(
        self, interceptor: RequestIdInterceptor
    ) -> None:
        async with serving(tell, interceptor) as channel:
            call = unary_unary(channel, METHOD)
            named = await call(b"", metadata=((REQUEST_ID_KEY, "named"),))
            together = await asyncio.gather(*(call(b"") for _ in range(20)))

        assert named == b"named"
        assert sorted(together) == sorted(b"made-%d" % number for number in range(1, 21))

    async def test_the_log_has_id_and_method(self, interceptor: RequestIdInterceptor) -> None:
        bound = {}

        async def behave(request: bytes, context: Any) -> bytes:
            bound.update(structlog.contextvars.get_contextvars())
            return b""

        async with serving(behave, interceptor) as channel:
            await unary_unary(channel, METHOD)(b"")

        assert bound == {"request_id": "made-1", "rpc": METHOD}

    def test_outside_of_a_call_there_is_none(self) -> None:
        assert current_request_id() == ""
