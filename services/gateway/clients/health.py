"""Checks the health of a service behind the gateway, by gRPC's health protocol."""

from grpc import aio
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from services.gateway.domain.errors import ServiceUnavailableError

_CHECK = "/grpc.health.v1.Health/Check"
_TIMEOUT = 2.0


class HealthProbe:
    """The `Probe` of one service."""

    def __init__(self, service: str, channel: aio.Channel) -> None:
        self._service = service
        self._check = channel.unary_unary(
            _CHECK,
            request_serializer=HealthCheckRequest.SerializeToString,
            response_deserializer=HealthCheckResponse.FromString,
        )

    async def check(self) -> None:
        """Return if the service says that it is serving.

        Raises:
            ServiceUnavailableError: it does not, or cannot be reached.
        """
        try:
            answer = await self._check(HealthCheckRequest(), timeout=_TIMEOUT)
        except aio.AioRpcError as error:
            raise ServiceUnavailableError(self._service) from error
        if answer.status != HealthCheckResponse.SERVING:
            raise ServiceUnavailableError(self._service)
