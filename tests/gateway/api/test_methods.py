"""The table of methods is that of the contract: no rpc can be forgotten."""

from types import ModuleType

import grpc
import pytest
from chatmind.agent.v1 import agent_service_pb2, review_service_pb2, run_service_pb2
from chatmind.gateway.v1 import access_service_pb2, gateway_service_pb2
from chatmind.knowledge.v1 import knowledge_service_pb2, memory_service_pb2
from grpc import aio

from services.gateway.api.methods import methods, services
from services.gateway.domain.policy import SCOPES_OF_SERVICES
from tests.calls import stream_stream
from tests.gateway.installation import Installation, bearer

SERVED = (
    gateway_service_pb2,
    access_service_pb2,
    agent_service_pb2,
    run_service_pb2,
    knowledge_service_pb2,
)
NOT_YET = (memory_service_pb2, review_service_pb2)
# For services that stand between their users and the agent service; it carries many users.
NOT_FOR_CLIENTS = "/chatmind.agent.v1.RunService/WatchSessions"


def paths(*modules: ModuleType) -> list[str]:
    """Every method of the services that these files of the contract define."""
    return [
        f"/{service.full_name}/{method.name}"
        for module in modules
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ]


class TestMethods:
    def test_every_method_of_every_served_service_has_a_scope(self) -> None:
        served = [path for path in paths(*SERVED) if path != NOT_FOR_CLIENTS]
        assert served == [method.path for method in methods()]

    def test_the_policy_names_no_method_that_is_none_and_none_twice(self) -> None:
        named = [
            f"/{service}/{method}"
            for service, scopes in SCOPES_OF_SERVICES.items()
            for methods_of_scope in scopes.values()
            for method in methods_of_scope
        ]

        assert sorted([*named, NOT_FOR_CLIENTS]) == sorted(paths(*SERVED))

    def test_what_is_not_offered_yet_is_not_served(self) -> None:
        assert not {method.path for method in methods()} & set(paths(*NOT_YET))
        assert not {"chatmind.knowledge.v1.MemoryService"} & set(services())

    async def test_what_carries_many_users_is_out_of_reach_for_clients(
        self, gateway: Installation
    ) -> None:
        call = stream_stream(gateway.channel, NOT_FOR_CLIENTS)(metadata=bearer(gateway.key))
        await call.write(b"")

        with pytest.raises(aio.AioRpcError) as refused:
            await call.read()

        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert gateway.agent.calls_with_watches == 0

    def test_shapes_are_the_contracts(self) -> None:
        shapes = {method.name: (method.streams_in, method.streams_out) for method in methods()}

        assert shapes["Search"] == (False, False)
        assert shapes["UploadDocument"] == (True, False)
        assert shapes["StreamMessages"] == shapes["WatchDocument"] == (False, True)

    def test_only_what_reads_is_asked_again(self) -> None:
        repeatable = {method.name for method in methods() if method.repeatable}

        assert {"GetAgent", "ListChunks"} <= repeatable
        assert all(name.startswith(("Get", "List")) for name in repeatable)
