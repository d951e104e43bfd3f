"""The embedding service's process: `python -m services.embedding`."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager

import structlog
from chatmind.embedding.v1 import embedding_service_pb2_grpc
from grpc import aio

from services.common.clock import now
from services.common.identity import IdentityVerifier, load_trusted_keys
from services.common.interceptors import interceptor_chain
from services.common.interceptors.authentication import AuthenticationInterceptor
from services.common.logging import configure_logging
from services.common.process import run_service, until_stopped
from services.common.server import RunningServer, serve
from services.common.settings import read_settings
from services.common.tasks import BackgroundTasks, background_tasks
from services.embedding.api.servicer import SERVICE_NAME, EmbeddingServicer
from services.embedding.clients.bundled import BundledBackend
from services.embedding.clients.http import open_json_client
from services.embedding.clients.ollama import OllamaBackend
from services.embedding.clients.openai import OpenAIBackend
from services.embedding.domain.batching import Batcher
from services.embedding.domain.embed import Embedding
from services.embedding.domain.models import (
    BackendKind,
    BatchLimits,
    ModelName,
    ModelSpec,
    Prefixes,
)
from services.embedding.domain.ports import Backend
from services.embedding.domain.readiness import keep_checking
from services.embedding.domain.registry import Registry
from services.embedding.settings import EmbeddingSettings

_NAME = "embedding"
_DOMAIN = "embedding.chatmind"
_CALLERS = frozenset({"knowledge"})

# Calls are small because a query waits for the running one: two chunks of 900 characters take
# 25 ms, and larger calls are no faster per text.
_BUNDLED_LIMITS = BatchLimits(max_texts=64, max_chars=2_000, alone_above=2_000)


def main() -> None:
    """Serve until asked to stop."""
    settings = read_settings(EmbeddingSettings)
    configure_logging(_NAME, level=settings.log_level)
    run_service(_NAME, until_stopped(running_embedding(settings)))


@asynccontextmanager
async def running_embedding(settings: EmbeddingSettings) -> AsyncIterator[RunningServer]:
    """An embedding service that runs for as long as the block lasts, and then drains.

    Raises:
        ListenError: the address is taken, or not one of this machine's.
        FileNotFoundError: a key is missing.
    """
    trusted = load_trusted_keys(settings.identity_dir / "trusted", _CALLERS)
    verifier = IdentityVerifier(_NAME, trusted, clock=now)
    async with AsyncExitStack() as stack:
        batchers = await _batchers(settings, stack)
        default = await _default_model(settings, [each.backend for each in batchers])
        servicer = EmbeddingServicer(Embedding(Registry(batchers, default=default)))
        tasks = await stack.enter_async_context(background_tasks())
        for batcher in batchers:
            _start(batcher, settings, default=default, tasks=tasks)

        def register(server: aio.Server) -> None:
            embedding_service_pb2_grpc.add_EmbeddingServiceServicer_to_server(servicer, server)

        yield await stack.enter_async_context(
            serve(
                settings,
                services=[SERVICE_NAME],
                register=register,
                interceptors=interceptor_chain(_DOMAIN, AuthenticationInterceptor(verifier)),
                draining=asyncio.Event(),
            )
        )


def _start(
    batcher: Batcher, settings: EmbeddingSettings, *, default: ModelName, tasks: BackgroundTasks
) -> None:
    """Start a batcher's work, and the checks of its backend."""
    backend = batcher.backend
    name = backend.spec.name
    tasks.start(f"batcher {name}", batcher.run())
    if backend.spec.kind is not BackendKind.BUNDLED:
        checking = keep_checking(backend, every=settings.check_interval_seconds)
        tasks.start(f"check {name}", checking)
    elif name == default:
        # It takes much memory, so one that is not the default is left to the first call.
        tasks.start(f"load {name}", backend.check())


async def _batchers(settings: EmbeddingSettings, stack: AsyncExitStack) -> list[Batcher]:
    """A batcher for every configured model; the stack closes what they need."""
    batchers = [_bundled(settings, stack)]
    if settings.serves_ollama:
        batchers.append(await _ollama(settings, stack))
    if settings.serves_openai:
        batchers.append(await _openai(settings, stack))
    return batchers


def _bundled(settings: EmbeddingSettings, stack: AsyncExitStack) -> Batcher:
    executor = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="encoder"))
    backend = BundledBackend(executor, max_batch_size=settings.max_batch_size)
    return _batcher(settings, backend, limits=_BUNDLED_LIMITS, concurrency=1)


async def _ollama(settings: EmbeddingSettings, stack: AsyncExitStack) -> Batcher:
    client = await stack.enter_async_context(
        open_json_client(settings.ollama_url, headers={}, trust_env=False)
    )
    spec = ModelSpec(
        name=ModelName(settings.ollama_model),
        kind=BackendKind.OLLAMA,
        dimensions=settings.ollama_dimensions,
        max_input_tokens=settings.ollama_max_input_tokens,
        max_batch_size=settings.max_batch_size,
    )
    backend = OllamaBackend(
        client,
        spec,
        prefixes=Prefixes(settings.ollama_query_prefix, settings.ollama_document_prefix),
        seconds=settings.ollama_timeout_seconds,
        check_seconds=settings.check_timeout_seconds,
    )
    limits = BatchLimits(
        max_texts=settings.ollama_max_call_texts,
        max_chars=settings.ollama_max_call_chars,
        # A text that may exceed the window is sent alone: only then is its token count known.
        alone_above=settings.ollama_max_input_tokens,
    )
    return _batcher(settings, backend, limits=limits, concurrency=settings.ollama_concurrency)


async def _openai(settings: EmbeddingSettings, stack: AsyncExitStack) -> Batcher:
    key = _openai_key(settings)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    client = await stack.enter_async_context(
        open_json_client(settings.openai_base_url, headers=headers, trust_env=True)
    )
    spec = ModelSpec(
        name=ModelName(settings.openai_model),
        kind=BackendKind.OPENAI,
        dimensions=settings.openai_size,
        max_input_tokens=settings.openai_max_input_tokens,
        max_batch_size=settings.max_batch_size,
    )
    backend = OpenAIBackend(
        client,
        spec,
        prefixes=Prefixes(settings.openai_query_prefix, settings.openai_document_prefix),
        send_dimensions=settings.openai_send_dimensions,
        seconds=settings.openai_timeout_seconds,
        check_seconds=settings.check_timeout_seconds,
    )
    limits = BatchLimits(
        max_texts=settings.openai_max_call_texts,
        max_chars=settings.openai_max_call_chars,
        alone_above=settings.openai_max_call_chars,
    )
    return _batcher(settings, backend, limits=limits, concurrency=settings.openai_concurrency)


def _openai_key(settings: EmbeddingSettings) -> str:
    if settings.openai_api_key_file is not None:
        return settings.openai_api_key_file.read_text(encoding="utf-8").strip()
    return settings.openai_api_key.get_secret_value()


def _batcher(
    settings: EmbeddingSettings, backend: Backend, *, limits: BatchLimits, concurrency: int
) -> Batcher:
    return Batcher(
        backend,
        limits,
        concurrency=concurrency,
        max_pending_texts=settings.max_pending_texts,
        max_pending_chars=settings.max_pending_chars,
    )


async def _default_model(settings: EmbeddingSettings, backends: Sequence[Backend]) -> ModelName:
    """The model that an empty name stands for: the configured one, or the best that is ready."""
    by_kind = {backend.spec.kind: backend for backend in backends}
    async with asyncio.TaskGroup() as group:
        for kind, backend in by_kind.items():
            if kind is not BackendKind.BUNDLED:
                group.create_task(backend.check())
    if settings.backend is not None:
        chosen, why = by_kind[settings.backend], "as configured"
    elif (ollama := by_kind[BackendKind.OLLAMA]).state.ready:
        chosen, why = ollama, f"Ollama answers at {settings.ollama_url} and has it"
    else:
        chosen = by_kind[BackendKind.BUNDLED]
        why = f"no Ollama with {ollama.spec.name} answers at {settings.ollama_url}"
    spec = chosen.spec
    log = structlog.get_logger(_NAME)
    log.info("default model", model=spec.name, backend=spec.kind.value, why=why)
    return spec.name
