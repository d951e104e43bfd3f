"""The interceptors of every server, in the order in which calls pass through them.

1. `request_id`      first, so that everything after it can name the call
2. `access_log`      logs the outcome of all that follows
3. `error_status`    turns whatever is raised below it into a status
4. `deadline`        limits the time of a call, authentication included
5. `authentication`  before any work is done, decoding included
6. `validation`      decodes the request and checks the rules of the contract
"""

from collections.abc import Sequence

from grpc import aio

from services.common.ids import NewId, new_id
from services.common.interceptors.access_log import AccessLogInterceptor
from services.common.interceptors.deadline import DeadlineInterceptor
from services.common.interceptors.error_status import ErrorStatusInterceptor
from services.common.interceptors.request_id import RequestIdInterceptor
from services.common.interceptors.validation import ValidationInterceptor


def interceptor_chain(
    domain: str, authentication: aio.ServerInterceptor, *, make_id: NewId = new_id
) -> Sequence[aio.ServerInterceptor]:
    """The chain of one server; `domain` is its ErrorInfo domain, such as `agent.chatmind`."""
    return (
        RequestIdInterceptor(make_id),
        AccessLogInterceptor(),
        ErrorStatusInterceptor(domain),
        DeadlineInterceptor(),
        authentication,
        ValidationInterceptor(),
    )
