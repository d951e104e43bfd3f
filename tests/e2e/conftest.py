"""Real processes for the end-to-end tests; none of them takes the usual ports."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.installation import Installation, free_environment


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """A fresh installation that runs, with the built-in parts alone."""
    yield from run(tmp_path_factory.mktemp("chatmind"))


def run(data_dir: Path, **environment: str) -> Iterator[Installation]:
    """An installation that runs until the generator is closed."""
    unset = {"OPENAI_API_KEY": "", "OPENAI_BASE_URL": "", "CHATMIND_MODELS_FILE": ""}
    installed = Installation(data_dir, {**unset, **free_environment(), **environment})
    try:
        installed.start()
        yield installed
    finally:
        installed.stop()
