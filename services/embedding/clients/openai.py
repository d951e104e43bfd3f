"""An OpenAI-compatible `/v1/embeddings` endpoint.

This is not the official SDK: only one route is needed, and the SDK uses as much CPU per call as
embedding a short text does.
"""

from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus

from services.embedding.clients.health import Health
from services.embedding.clients.http import Answer, JsonClient, UnreachableError, error_of
from services.embedding.domain.checks import outcomes_by_index
from services.embedding.domain.errors import BackendUnavailableError
from services.embedding.domain.models import (
    BackendState,
    ModelSpec,
    Outcome,
    Prefixes,
    Purpose,
    Vector,
)

_CREDENTIALS_REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class OpenAIBackend:
    """One model of an OpenAI-compatible endpoint."""

    def __init__(
        self,
        client: JsonClient,
        spec: ModelSpec,
        *,
        prefixes: Prefixes,
        send_dimensions: bool,
        seconds: float,
        check_seconds: float,
    ) -> None:
        """Describe the model; the endpoint is not contacted yet.

        Args:
            client: talks to the endpoint, and sends the key.
            spec: the model.
            prefixes: what the model expects in front of each text.
            send_dimensions: request `spec.dimensions`, which only some models understand.
            seconds: timeout of a call.
            check_seconds: timeout of a check.
        """
        self.spec = spec
        self._client = client
        self._prefixes = prefixes
        self._extra = {"dimensions": spec.dimensions} if send_dimensions else {}
        self._seconds = seconds
        self._check_seconds = check_seconds
        self._health = Health(spec, BackendState(ready=False))

    @property
    def state(self) -> BackendState:
        """The last known state."""
        return self._health.state

    async def check(self) -> None:
        """Find out whether the endpoint is up and accepts our key.

        Not every endpoint lists its models, so a missing list proves nothing.
        """
        try:
            answer = await self._client.get("models", seconds=self._check_seconds)
        except UnreachableError as error:
            self._health.mark_unavailable(str(error))
            return
        failed = answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        if failed or answer.status in _CREDENTIALS_REFUSED:
            self._health.mark_unavailable(f"it answers HTTP {answer.status}")
        else:
            self._health.mark_ready()

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[Outcome]:
        """Make one call."""
        try:
            return await self._embed(self._prefixes.apply(texts, purpose))
        except BackendUnavailableError as error:
            self._health.mark_unavailable(error.message)
            raise

    async def _embed(self, inputs: list[str]) -> list[Outcome]:
        payload = {
            "model": self.spec.name,
            "input": inputs,
            "encoding_format": "float",
            **self._extra,
        }
        try:
            answer = await self._client.post("embeddings", payload, seconds=self._seconds)
        except UnreachableError as error:
            raise BackendUnavailableError(self.spec, f"the endpoint: {error}") from error
        if not answer.ok:
            self._health.log_refusal(answer.status, answer.error)
            raise error_of(answer, self.spec, not_found="the endpoint does not know the model")
        return self._read(answer, inputs)

    def _read(self, answer: Answer, inputs: Sequence[str]) -> list[Outcome]:
        body = answer.body
        if not isinstance(body, dict):
            raise BackendUnavailableError(self.spec, "its answer is not in OpenAI's format")
        self._health.mark_ready()
        found = outcomes_by_index(
            body.get("data"), count=len(inputs), dimensions=self.spec.dimensions
        )
        if len(found) == 1 and isinstance(found[0], Vector):
            return [replace(found[0], token_count=_token_count(body.get("usage")))]
        return found


def _token_count(usage: object) -> int:
    """The tokens of a call with a single text; 0 if the endpoint does not say."""
    count = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return count if type(count) is int and 0 < count < 2**31 else 0
