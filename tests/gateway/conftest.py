"""What the gateway's tests share."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.installation import Installation, open_installation

_TEMPLATE = "chatmind_template"


@pytest.fixture(scope="session")
def keys_database(postgres_server: Any) -> Iterator[str]:
    """The address of a database for all tests here: keys of many tests do not get in their way."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        opened = postgres_server.database(template=_TEMPLATE)
        yield runner.run(stack.enter_async_context(opened))
        runner.run(stack.aclose())


@pytest.fixture
async def gateway(tmp_path: Path, keys_database: str) -> AsyncIterator[Installation]:
    """A gateway with what stands behind it, for this test alone."""
    async with open_installation(tmp_path, keys_database) as installation:
        yield installation
