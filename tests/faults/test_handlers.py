"""T-S14: whatever goes wrong in whichever handler, no caller reads what it was."""

import importlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from grpc import aio

from services.common.interceptors import interceptor_chain
from services.common.interceptors.base import AdmittingInterceptor, Call
from services.common.interceptors.request_id import REQUEST_ID_KEY
from services.common.status import failure_of

SECRET = "postgresql://ada:hunter2@db/chatmind"
CONTRACT = Path(__file__).parents[2] / "gen/chatmind"
MODULES = sorted(
    ".".join(("chatmind", *path.relative_to(CONTRACT).with_suffix("").parts))
    for path in CONTRACT.glob("*/v1/*_service_pb2.py")
)


def methods() -> Iterator[MethodDescriptor]:
    """Every method of every service in the contract."""
    for name in MODULES:
        for service in importlib.import_module(name).DESCRIPTOR.services_by_name.values():
            yield from service.methods


class Faulty:
    """A servicer whose every method fails with a secret in its error."""

    def __getattr__(self, name: str) -> Any:
        async def fail(request: Any, context: Any) -> None:
            raise ValueError(SECRET) from ConnectionError(SECRET)

        return fail


class Open(AdmittingInterceptor):
    """Lets everybody in."""

    async def admit(self, call: Call) -> None:
        """Do nothing."""


@pytest.fixture
async def channel(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[aio.Channel]:
    """A channel to a server of all services, with the chain that all of them have."""
    chain = interceptor_chain("test.chatmind", Open())
    # Empty requests break rules; here they are to reach the handlers.
    monkeypatch.setattr(chain[-1], "_validator", SimpleNamespace(collect_violations=lambda _: []))
    server = aio.server(interceptors=chain)
    for name in MODULES:
        stubs = importlib.import_module(f"{name}_grpc")
        for service in importlib.import_module(name).DESCRIPTOR.services_by_name:
            getattr(stubs, f"add_{service}Servicer_to_server")(Faulty(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    await server.stop(0)


def test_the_whole_contract_is_there() -> None:
    services = {method.containing_service.full_name.split(".")[1] for method in methods()}

    assert services == {"agent", "embedding", "gateway", "knowledge"}


@pytest.mark.parametrize("method", list(methods()), ids=lambda method: method.full_name)
async def test_a_fault_is_internal_and_says_nothing(
    channel: aio.Channel, method: MethodDescriptor
) -> None:
    path = f"/{method.containing_service.full_name}/{method.name}"
    with pytest.raises(aio.AioRpcError) as caught:
        await answer(channel, path, method)

    error = caught.value
    told = [error.details(), error.debug_error_string(), *(error.trailing_metadata() or ())]
    assert error.code() is grpc.StatusCode.INTERNAL
    assert failure_of(error).metadata["request_id"] == "r1"
    assert "hunter2" not in repr(told)


async def answer(channel: aio.Channel, path: str, method: MethodDescriptor) -> None:
    """Call a method of whatever shape, with an empty request, and read its answer."""
    metadata = ((REQUEST_ID_KEY, "r1"),)
    kind = (
        f"{'stream' if method.client_streaming else 'unary'}_"
        f"{'stream' if method.server_streaming else 'unary'}"
    )
    asked = iter([b""]) if method.client_streaming else b""
    call = getattr(channel, kind)(path)(asked, metadata=metadata, timeout=10)
    await (call.read() if method.server_streaming else call)
