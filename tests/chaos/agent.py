"""The agent service as the campaigns run it: the real one, with more tools and points of failure.

The product knows nothing of this: its parts are wrapped here, where the process is composed.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import structlog

from services.agent import main as product
from services.agent.clients.models import open_models
from services.agent.clients.models_file import load_models
from services.agent.domain.chat import ModelInfo, ModelReply, ModelRequest
from services.agent.domain.errors import FencedError
from services.agent.domain.ports import Model, ModelRegistry, RunJournal
from services.agent.domain.queue import Claim
from services.agent.settings import AgentServiceSettings
from services.agent.store.postgres.queue import PostgresRunQueue
from services.agent.store.postgres.runs import PostgresRunStore
from services.common.logging import configure_logging
from services.common.process import run_service, until_stopped
from services.common.settings import read_settings
from tests.chaos import mutations
from tests.chaos.failpoints import SUBMIT, VARIABLE, Failpoints
from tests.chaos.tools import LEDGER, TOOL_SECONDS, chaos_tools

FENCED = "late write refused"
"""What the log says of a write that came after the run was another's."""

LANDED = "late write accepted"
"""What it says if such a write is taken nevertheless."""

_WRITES = {
    "append_assistant": "reply",
    "start_tool_calls": "announce",
    "append_tool_results": "result",
    "finish": "finish",
}


class WatchedJournal:
    """A journal that reaches the failpoints around its writes."""

    def __init__(self, journal: RunJournal, points: Failpoints) -> None:
        self._journal = journal
        self._points = points
        self._late: set[asyncio.Task[Any]] = set()

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        """The write of that name, watched."""
        write: Callable[..., Awaitable[Any]] = getattr(self._journal, name)
        act = _WRITES.get(name)
        if act is None:
            return write

        async def watched(*given: Any, **named: Any) -> Any:
            with self._points.around(act) as frozen:
                if frozen:
                    return await self._on_the_wire(write(*given, **named))
                return await write(*given, **named)

        return watched

    async def _on_the_wire(self, write: Awaitable[Any]) -> Any:
        """A write that was under way when the process was frozen: nothing can call it back."""
        task = asyncio.ensure_future(_told(write))
        self._late.add(task)
        task.add_done_callback(self._late.discard)
        return await asyncio.shield(task)


async def _told(write: Awaitable[Any]) -> Any:
    log = structlog.get_logger("chaos")
    try:
        result = await write
    except FencedError:
        log.warning(FENCED)
        raise
    log.warning(LANDED)
    return result


class WatchedModel:
    """A model that reaches the failpoints around each question."""

    def __init__(self, model: Model, points: Failpoints) -> None:
        self._model = model
        self._points = points

    @property
    def info(self) -> ModelInfo:
        """What is told of it."""
        return self._model.info

    async def complete(self, request: ModelRequest) -> ModelReply:
        """The model's reply."""
        with self._points.around("model"):
            return await self._model.complete(request)


class WatchedModels:
    """Models of which each is watched."""

    def __init__(self, models: ModelRegistry, points: Failpoints) -> None:
        self._models = models
        self._points = points

    def get(self, name: str) -> Model | None:
        """The model of that name."""
        model = self._models.get(name)
        return None if model is None else WatchedModel(model, self._points)

    def list(self) -> Sequence[ModelInfo]:
        """All of them."""
        return self._models.list()


def watch(points: Failpoints) -> None:
    """Have the product composed of parts that are watched."""

    class WatchedQueue(PostgresRunQueue):
        def journal(self, claim: Claim) -> Any:
            return WatchedJournal(super().journal(claim), points)

    @asynccontextmanager
    async def watched_models(*given: Any, **named: Any) -> AsyncIterator[ModelRegistry]:
        async with open_models(*given, **named) as models:
            yield WatchedModels(models, points)

    class WatchedRunStore(PostgresRunStore):
        async def start(self, *given: Any, **named: Any) -> Any:
            with points.around(SUBMIT):
                return await super().start(*given, **named)

    vars(product).update(
        PostgresRunQueue=WatchedQueue,
        PostgresRunStore=WatchedRunStore,
        open_models=watched_models,
    )


def main() -> None:
    """Run the service that the environment describes."""
    settings = read_settings(AgentServiceSettings)
    configure_logging("agent", level=settings.log_level)
    mutations.apply(os.environ)
    points = Failpoints(os.environ.get(VARIABLE, ""))
    watch(points)
    tools = chaos_tools(
        Path(os.environ[LEDGER]), points, seconds=float(os.environ.get(TOOL_SECONDS, "0"))
    )
    models = load_models(settings.models_file, os.environ)
    run_service("agent", until_stopped(product.running_agent(settings, models, tools)))


if __name__ == "__main__":
    main()
