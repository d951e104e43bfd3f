"""An OpenAI-compatible `/v1/embeddings` endpoint.

A client of its own: of the endpoint one route is needed, and the official SDK costs as much CPU a
call as embedding a short text does.
"""

from collections.abc import Sequence
from dataclasses import replace

from services.embedding.clients.health import Health
from services.embedding.clients.http import Answer, JsonClient, UnreachableError, refuse
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

_CREDENTIALS_REFUSED = (401, 403)
_SERVER_ERROR = 500


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
        """Makes one.

        Args:
            client: asks the endpoint; sends the key.
            spec: the model.
            prefixes: what the model wants written before each text.
            send_dimensions: ask for `spec.dimensions`, which only some models understand.
            seconds: how long a call may take.
            check_seconds: how long a check may take.
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
        """How it was when last heard of."""
        return self._health.state

    async def check(self) -> None:
        """Ask whether the endpoint is there and takes our key.

        Not every endpoint lists its models, so that no list proves nothing.
        """
        try:
            answer = await self._client.get("models", seconds=self._check_seconds)
        except UnreachableError as error:
            self._health.ill(str(error))
            return
        if answer.status >= _SERVER_ERROR or answer.status in _CREDENTIALS_REFUSED:
            self._health.ill(f"it answers HTTP {answer.status}")
        else:
            self._health.well()

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[Outcome]:
        """One call."""
        try:
            return await self._embed(self._prefixes.apply(texts, purpose))
        except BackendUnavailableError as error:
            self._health.ill(error.message)
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
            self._health.refused(answer.status, answer.error)
            refuse(answer, self.spec, lacking="the endpoint does not know the model")
        return self._read(answer, inputs)

    def _read(self, answer: Answer, inputs: Sequence[str]) -> list[Outcome]:
        body = answer.body
        if not isinstance(body, dict):
            raise BackendUnavailableError(self.spec, "what answers does not speak as OpenAI does")
        self._health.well()
        found = outcomes_by_index(
            body.get("data"), count=len(inputs), dimensions=self.spec.dimensions
        )
        if len(found) == 1 and isinstance(found[0], Vector):
            return [replace(found[0], token_count=_token_count(body.get("usage")))]
        return found


def _token_count(usage: object) -> int:
    """The tokens of a call with a single text; 0 where the endpoint does not tell."""
    count = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return count if type(count) is int and 0 < count < 2**31 else 0
