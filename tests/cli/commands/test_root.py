"""`chatmind` itself."""

import re

from tests.cli.conftest import Chatmind


def test_its_version_is_told(chatmind: Chatmind) -> None:
    result = chatmind("--version")

    assert result.exit_code == 0
    assert re.fullmatch(r"chatmind \d+\.\d+\.\d+\S*\n", result.stdout)
