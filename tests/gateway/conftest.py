"""What the gateway's tests share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateway.installation import Installation, open_installation


@pytest.fixture
async def gateway(tmp_path: Path, database: str) -> AsyncIterator[Installation]:
    """A gateway with what stands behind it, for this test alone."""
    async with open_installation(tmp_path, database) as installation:
        yield installation
