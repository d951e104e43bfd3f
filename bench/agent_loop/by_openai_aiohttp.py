"""The conversation by hand on the openai package over aiohttp, as its extra of that name has it."""

from contextlib import AbstractAsyncContextManager

from openai import DefaultAioHttpClient

from bench.agent_loop.by_hand import Converse
from bench.agent_loop.by_openai import open_loop

PACKAGES = ("openai", "aiohttp")


def open_contender(base_url: str) -> AbstractAsyncContextManager[Converse]:
    """A loop with a client of its own."""
    return open_loop(base_url, http_client=DefaultAioHttpClient())
