"""The methods that the gateway serves, with their shapes from the contract."""

from collections.abc import Iterator
from dataclasses import dataclass

# The modules are imported for their descriptors, which reflection needs as well.
from chatmind.agent.v1 import agent_service_pb2, run_service_pb2
from chatmind.gateway.v1 import access_service_pb2, gateway_service_pb2
from chatmind.knowledge.v1 import knowledge_service_pb2
from google.protobuf.descriptor import FileDescriptor, ServiceDescriptor

from services.gateway.domain.policy import scope_of

_FILES: tuple[FileDescriptor, ...] = (
    gateway_service_pb2.DESCRIPTOR,
    access_service_pb2.DESCRIPTOR,
    agent_service_pb2.DESCRIPTOR,
    run_service_pb2.DESCRIPTOR,
    knowledge_service_pb2.DESCRIPTOR,
)


@dataclass(frozen=True, slots=True)
class Method:
    """A method that clients may call.

    Attributes:
        service: full name of its service.
        name: its own name.
        streams_in: whether requests come as a stream.
        streams_out: whether answers go out as a stream.
    """

    service: str
    name: str
    streams_in: bool
    streams_out: bool

    @property
    def path(self) -> str:
        """Its path in a call: `/package.Service/Method`."""
        return f"/{self.service}/{self.name}"

    @property
    def owner(self) -> str:
        """The service that answers it, such as `agent`."""
        return self.service.split(".")[1]

    @property
    def repeatable(self) -> bool:
        """Whether it only reads, so that it may be retried when the connection breaks."""
        return self.name.startswith(("Get", "List")) and not self.streams_out


def services() -> tuple[str, ...]:
    """The full names of all services of the contract that clients may call."""
    return tuple(service.full_name for service in _services())


def methods() -> tuple[Method, ...]:
    """All methods that clients may call, according to the policy."""
    found = (
        Method(service.full_name, method.name, method.client_streaming, method.server_streaming)
        for service in _services()
        for method in service.methods
    )
    return tuple(method for method in found if scope_of(method.path) is not None)


def _services() -> Iterator[ServiceDescriptor]:
    for file in _FILES:
        yield from file.services_by_name.values()
