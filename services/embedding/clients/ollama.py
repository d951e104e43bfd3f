"""An Ollama server's `/api/embed`.

Its quirks (docs.ollama.com/api/embed; ollama/ollama issues 14186, 14259, 14657, 15582): long texts
are cut silently unless the request says `truncate: false`; then the answer is 400 (500 in older
versions) with "input length exceeds the context length". Some versions read 2,048 tokens whatever
the model and the settings say, which shows only in `prompt_eval_count`, the count for a whole call.
A text for which the model computes NaN fails its whole call with 400 or 500, every time.
"""

from collections.abc import Sequence
from dataclasses import replace

from services.embedding.clients.health import Health
from services.embedding.clients.http import Answer, JsonClient, UnreachableError, error_of
from services.embedding.domain.checks import outcomes
from services.embedding.domain.errors import BackendUnavailableError
from services.embedding.domain.models import (
    BackendState,
    ModelSpec,
    Outcome,
    Prefixes,
    Purpose,
    Vector,
)

_SPECIAL_TOKENS = 2
_WINDOWS = frozenset(2**power for power in range(11, 16))
"""Token counts that mean a text was cut: windows are 2,048 to 32,768 tokens, and hardly any text
has exactly that many."""


class OllamaBackend:
    """One model of an Ollama server."""

    def __init__(
        self,
        client: JsonClient,
        spec: ModelSpec,
        *,
        prefixes: Prefixes,
        seconds: float,
        check_seconds: float,
    ) -> None:
        """Describe the model; the server is not contacted yet.

        Args:
            client: talks to the server.
            spec: the model; the server can be relied on to read its `max_input_tokens`.
            prefixes: what the model expects in front of each text.
            seconds: timeout of a call, loading the model included.
            check_seconds: timeout of a check.
        """
        self.spec = spec
        self._client = client
        self._prefixes = prefixes
        self._seconds = seconds
        self._check_seconds = check_seconds
        self._health = Health(spec, BackendState(ready=False))

    @property
    def state(self) -> BackendState:
        """The last known state."""
        return self._health.state

    async def check(self) -> None:
        """Find out whether the server is up and has the model, and the model's digest."""
        try:
            answer = await self._client.get("/api/tags", seconds=self._check_seconds)
        except UnreachableError as error:
            self._health.mark_unavailable(f"Ollama: {error}")
            return
        digest = _digest_of(self.spec.name, answer.body) if answer.ok else None
        if digest is None:
            status = f"Ollama answers HTTP {answer.status}"
            self._health.mark_unavailable(self._lacking() if answer.ok else status)
        else:
            self._health.mark_ready(digest)

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[Outcome]:
        """Make one call, or two for a single text that is longer than the server reads.

        A server that was not ready is checked first: that is cheap if it is still down, and gives
        the digest if it is back.
        """
        inputs = self._prefixes.apply(texts, purpose)
        if not self.state.ready:
            await self.check()
        if not self.state.ready:
            raise BackendUnavailableError(self.spec, self._health.why)
        try:
            return await self._embed(inputs)
        except BackendUnavailableError as error:
            self._health.mark_unavailable(error.message)
            raise

    async def _embed(self, inputs: list[str]) -> list[Outcome]:
        answer = await self._ask(inputs)
        if answer.ok:
            return self._read(answer, inputs)
        if len(inputs) == 1 and _too_long(answer):
            return await self._embed_beginning(inputs[0], answer)
        raise self._refusal(answer)

    async def _embed_beginning(self, text: str, refusal: Answer) -> list[Outcome]:
        """Embed as much as is sure to fit; the server's own truncation cannot be relied on."""
        # No tokenizer makes more tokens than there are bytes.
        most_bytes = max(1, self.spec.max_input_tokens - _SPECIAL_TOKENS)
        beginning = text.encode()[:most_bytes].decode(errors="ignore")
        if len(beginning) == len(text):
            raise self._refusal(refusal)
        answer = await self._ask([beginning])
        if not answer.ok:
            raise self._refusal(answer)
        (outcome,) = self._read(answer, [beginning])
        return [replace(outcome, truncated=True) if isinstance(outcome, Vector) else outcome]

    async def _ask(self, inputs: Sequence[str]) -> Answer:
        payload = {"model": self.spec.name, "input": inputs, "truncate": False}
        try:
            return await self._client.post("/api/embed", payload, seconds=self._seconds)
        except UnreachableError as error:
            raise BackendUnavailableError(self.spec, f"Ollama: {error}") from error

    def _read(self, answer: Answer, inputs: Sequence[str]) -> list[Outcome]:
        if not isinstance(answer.body, dict):
            raise BackendUnavailableError(self.spec, "its answer is not in Ollama's format")
        self._health.mark_ready()
        rows = answer.body.get("embeddings")
        found = outcomes(rows, count=len(inputs), dimensions=self.spec.dimensions)
        if len(found) == 1 and isinstance(found[0], Vector):
            return [self._counted(found[0], answer.body.get("prompt_eval_count"))]
        return found

    def _counted(self, vector: Vector, count: object) -> Vector:
        if type(count) is not int or not 0 < count < 2**31:
            return vector
        cut = count in _WINDOWS or count == self.spec.max_input_tokens
        return replace(vector, token_count=count, truncated=cut)

    def _refusal(self, answer: Answer) -> Exception:
        self._health.log_refusal(answer.status, answer.error)
        # A 404 without an error message means that the route is missing, not the model.
        lacking = self._lacking() if answer.error else "it has no /api/embed; update Ollama"
        return error_of(answer, self.spec, not_found=lacking)

    def _lacking(self) -> str:
        return f"Ollama lacks the model; run 'ollama pull {self.spec.name}'"


def _too_long(answer: Answer) -> bool:
    return "context length" in answer.error or "input length" in answer.error


def _digest_of(model: str, body: object) -> str | None:
    """The digest of a model in the answer of `/api/tags`; None if the model is not listed."""
    models = body.get("models") if isinstance(body, dict) else None
    for each in models if isinstance(models, list) else ():
        if isinstance(each, dict) and each.get("name") in {model, f"{model}:latest"}:
            digest = each.get("digest")
            return f"sha256:{digest}" if isinstance(digest, str) and digest else ""
    return None
