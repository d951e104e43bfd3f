"""Fakes of Ollama and of an OpenAI-compatible endpoint, as far as embedding goes."""

import asyncio
from collections.abc import Callable
from typing import Any

from tests.embedding.fake_http import FakeServer, Reply, Request
from tests.embedding.memory_backend import toy_numbers

Override = Callable[[Request], Reply | None]


class FakeOllama(FakeServer):
    """Speaks `/api/embed` and `/api/tags`; a word is a token; texts with "poison" give NaN.

    Attributes:
        window: how many tokens of a text it reads.
        silent: cut at the window without a word, even when told not to.
        models: what it has, with digests.
        override: answers in place of the fake where it gives a reply.
        hold: waited for before each answer of `/api/embed`.
        seconds: how long it takes for each of these.
    """

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.window = 2048
        self.silent = False
        self.models = {"bge-m3:latest": "7907646426070047"}
        self.override: Override = lambda _: None
        self.seconds = 0.0
        self.hold = asyncio.Event()
        self.hold.set()

    async def _answer(self, request: Request) -> Reply:
        if request.path == "/api/embed":
            await self.hold.wait()
            await asyncio.sleep(self.seconds)
        return self.override(request) or self._route(request)

    def _route(self, request: Request) -> Reply:
        match request.method, request.path:
            case "GET", "/api/tags":
                listed = [{"name": name, "digest": self.models[name]} for name in self.models]
                return Reply(body={"models": listed})
            case "POST", "/api/embed":
                return self._embed(request.body)
            case _:
                return Reply(404, b"404 page not found")

    def _embed(self, body: Any) -> Reply:
        if not {body["model"], f"{body['model']}:latest"} & set(self.models):
            return Reply(404, {"error": f"model '{body['model']}' not found"})
        texts: list[str] = body["input"]
        sizes = [len(text.split()) for text in texts]
        if max(sizes) > self.window and not self.silent and not body.get("truncate", True):
            return Reply(400, {"error": "the input length exceeds the context length"})
        if any("poison" in text for text in texts):
            return Reply(500, {"error": "failed to encode response: json: unsupported value: NaN"})
        read = [" ".join(text.split()[: self.window]) for text in texts]
        count = sum(min(size, self.window) for size in sizes)
        rows = [toy_numbers(text) for text in read]
        return Reply(body={"embeddings": rows, "prompt_eval_count": count})


class FakeOpenAI(FakeServer):
    """Speaks `/v1/embeddings` and `/v1/models`, with items in reverse order.

    Attributes:
        key: the only key it takes.
        override: answers in place of the fake where it gives a reply.
    """

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.key = "secret-key"
        self.override: Override = lambda _: None

    async def _answer(self, request: Request) -> Reply:
        return self.override(request) or self._route(request)

    def _route(self, request: Request) -> Reply:
        if request.headers.get("authorization") != f"Bearer {self.key}":
            return Reply(401, {"error": {"message": f"bad key {self.key[:3]}", "code": "x"}})
        match request.method, request.path:
            case "GET", "/v1/models":
                return Reply(body={"object": "list", "data": [{"id": "embed-1"}]})
            case "POST", "/v1/embeddings":
                return self._embed(request.body)
            case _:
                return Reply(404, {"error": {"message": "unknown url"}})

    def _embed(self, body: Any) -> Reply:
        texts: list[str] = body["input"]
        if any("poison" in text for text in texts):
            return Reply(400, {"error": {"message": "this input cannot be embedded"}})
        data = [
            {"object": "embedding", "index": at, "embedding": toy_numbers(text)}
            for at, text in enumerate(texts)
        ]
        tokens = sum(len(text.split()) for text in texts)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return Reply(body={"data": data[::-1], "model": body["model"], "usage": usage})
