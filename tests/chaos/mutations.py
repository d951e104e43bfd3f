"""Takes one safeguard away, to see that the campaigns notice; never done by the product itself.

CHAOS_WITHOUT=fence     the writes of workers do not check the epoch any more
CHAOS_WITHOUT=drain     a server that is to stop does not say so before it does
"""

import importlib
import pkgutil
import re
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Final

from grpc_health.v1 import health_pb2
from grpc_health.v1.health import aio as health_aio

from services.common import server

VARIABLE: Final = "CHAOS_WITHOUT"

_EPOCH = re.compile(r"\b(?:run\.)?epoch = (held\.epoch|\$\d+)")


def apply(environment: Mapping[str, str]) -> None:
    """Do without what the environment says.

    Raises:
        ValueError: there is no such safeguard, or it is not found any more.
    """
    for safeguard in environment.get(VARIABLE, "").split():
        match safeguard:
            case "fence":
                _without_fence()
            case "drain":
                _without_drain()
            case _:
                raise ValueError(f"no safeguard {safeguard!r}")


def _without_fence() -> None:
    """Have every statement of the store accept any epoch."""
    store = importlib.import_module("services.agent.store.postgres")
    changed = sum(_mutate(importlib.import_module(name)) for name in _submodules(store))
    if changed < 5:
        raise ValueError(f"only {changed} statements check the epoch")


def _submodules(package: ModuleType) -> list[str]:
    return [f"{package.__name__}.{each.name}" for each in pkgutil.iter_modules(package.__path__)]


def _mutate(module: ModuleType) -> int:
    """Change a module's statements; gives how many."""
    changed = 0
    for name, value in list(vars(module).items()):
        if isinstance(value, str) and (mutated := _EPOCH.sub(_any, value)) != value:
            setattr(module, name, mutated)
            changed += 1
    return changed


def _any(found: re.Match[str]) -> str:
    return f"{found[1]}::bigint IS NOT NULL"


def _without_drain() -> None:
    """Have servers stop at once, without a word to those who watch their health."""
    set_health = server._set_health

    async def say_only_that_it_serves(
        health: health_aio.HealthServicer, services: Sequence[str], status: int
    ) -> None:
        if status == health_pb2.HealthCheckResponse.SERVING:
            await set_health(health, services, status)

    server._set_health = say_only_that_it_serves
