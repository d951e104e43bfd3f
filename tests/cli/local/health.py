"""Services that can do nothing but tell how they are; light, for processes of their own."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from tests.calls import blocking_health_of


@contextmanager
def serving(address: str, *, ready: bool = True) -> Iterator[None]:
    """Tells that it serves, or that it does not yet, for as long as the block lasts."""
    status = health_pb2.HealthCheckResponse
    servicer = health.HealthServicer()
    servicer.set("", status.SERVING if ready else status.NOT_SERVING)
    server = grpc.server(ThreadPoolExecutor(4))
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    server.add_insecure_port(address)
    server.start()
    try:
        yield
    finally:
        server.stop(0).wait(10)


def healthy(address: str) -> bool:
    """Whether a service answers there that it serves."""
    with grpc.insecure_channel(address) as channel:
        stub = blocking_health_of(channel)
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=10)
        except grpc.RpcError:
            return False
    return answer.status == health_pb2.HealthCheckResponse.SERVING
