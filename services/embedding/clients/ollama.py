"""An Ollama server's `/api/embed`.

What is known of it (docs.ollama.com/api/embed; ollama/ollama issues 14186, 14259, 14657, 15582): it
cuts long texts silently unless told `truncate: false`; then it answers 400 (older: 500) with "input
length exceeds the context length". Some versions read 2,048 tokens whatever the model and the
settings say, and tell only by `prompt_eval_count`, which counts a whole call. A text for which the
model computes NaN fails its whole call with 400 or 500, each time.
"""

from collections.abc import Sequence
from dataclasses import replace

from services.embedding.clients.health import Health
from services.embedding.clients.http import Answer, JsonClient, UnreachableError, refuse
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
"""Counts that mean a cut: windows are 2,048 to 32,768 tokens; hardly a text has exactly so many."""


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
        """Makes one.

        Args:
            client: asks the server.
            spec: the model; its `max_input_tokens` is what the server surely reads.
            prefixes: what the model wants written before each text.
            seconds: how long a call may take, loading the model included.
            check_seconds: how long a check may take.
        """
        self.spec = spec
        self._client = client
        self._prefixes = prefixes
        self._seconds = seconds
        self._check_seconds = check_seconds
        self._health = Health(spec, BackendState(ready=False))

    @property
    def state(self) -> BackendState:
        """How it was when last heard of."""
        return self._health.state

    async def check(self) -> None:
        """Ask whether the server is there and has the model, and with which digest."""
        try:
            answer = await self._client.get("/api/tags", seconds=self._check_seconds)
        except UnreachableError as error:
            self._health.ill(f"Ollama: {error}")
            return
        digest = _digest_of(self.spec.name, answer.body) if answer.ok else None
        if digest is None:
            status = f"Ollama answers HTTP {answer.status}"
            self._health.ill(self._lacking() if answer.ok else status)
        else:
            self._health.well(digest)

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[Outcome]:
        """One call, or two for a single text that is longer than the server reads.

        A server that was not ready is checked first: that costs little where it still is not, and
        tells the digest where it is again.
        """
        inputs = self._prefixes.apply(texts, purpose)
        if not self.state.ready:
            await self.check()
        if not self.state.ready:
            raise BackendUnavailableError(self.spec, self._health.why)
        try:
            return await self._embed(inputs)
        except BackendUnavailableError as error:
            self._health.ill(error.message)
            raise

    async def _embed(self, inputs: list[str]) -> list[Outcome]:
        answer = await self._ask(inputs)
        if answer.ok:
            return self._read(answer, inputs)
        if len(inputs) == 1 and _too_long(answer):
            return await self._embed_beginning(inputs[0], answer)
        return self._refuse(answer)

    async def _embed_beginning(self, text: str, refusal: Answer) -> list[Outcome]:
        """Embeds what surely fits; the server's own cut cannot be relied on."""
        surely = max(1, self.spec.max_input_tokens - _SPECIAL_TOKENS)
        # No tokenizer makes more tokens than there are bytes.
        beginning = text.encode()[:surely].decode(errors="ignore")
        if len(beginning) == len(text):
            self._refuse(refusal)
        answer = await self._ask([beginning])
        if not answer.ok:
            self._refuse(answer)
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
            raise BackendUnavailableError(self.spec, "what answers does not speak as Ollama does")
        self._health.well()
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

    def _refuse(self, answer: Answer) -> list[Outcome]:
        self._health.refused(answer.status, answer.error)
        # Without a word it is not the model that was not found.
        lacking = self._lacking() if answer.error else "it has no /api/embed; update Ollama"
        refuse(answer, self.spec, lacking=lacking)

    def _lacking(self) -> str:
        return f"Ollama lacks the model; run 'ollama pull {self.spec.name}'"


def _too_long(answer: Answer) -> bool:
    return "context length" in answer.error or "input length" in answer.error


def _digest_of(model: str, body: object) -> str | None:
    """The digest of a model in the answer of `/api/tags`; None where the model is not there."""
    models = body.get("models") if isinstance(body, dict) else None
    for each in models if isinstance(models, list) else ():
        if isinstance(each, dict) and each.get("name") in {model, f"{model}:latest"}:
            digest = each.get("digest")
            return f"sha256:{digest}" if isinstance(digest, str) and digest else ""
    return None
