"""Servicers of which a test or a measurement needs some methods only."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
ServicerT = TypeVar("ServicerT")


def incomplete(servicer: Callable[P, ServicerT]) -> Callable[P, ServicerT]:
    """Lets a servicer be made that lacks methods; grpc answers for those with UNIMPLEMENTED.

    The stubs call them abstract, so that no service forgets one.
    """
    return servicer
