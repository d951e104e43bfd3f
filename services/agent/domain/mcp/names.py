"""What models call the tools of MCP servers. Pure."""

import hashlib
import re
from collections.abc import Container
from typing import Final

MAX_NAME: Final = 64

_UNFIT = re.compile(r"[^a-zA-Z0-9_-]+")
_HASH_CHARS: Final = 8


def offered_name(server: str, tool: str, *, taken: Container[str]) -> str:
    """The name of a server's tool: valid for every model, and the same each time it is asked for.

    It is `<server>_<tool>` where that fits; otherwise it ends in a hash of the two, so that what it
    is does not hang on which other tools the server has.

    Args:
        server: its name, without "_".
        tool: what the server calls it.
        taken: names of tools that no server's may have.
    """
    fitting = _UNFIT.sub("_", tool)
    plain = f"{server}_{fitting}"
    if fitting == tool and len(plain) <= MAX_NAME and plain not in taken:
        return plain
    mark = hashlib.sha256(f"{server}\n{tool}".encode()).hexdigest()[:_HASH_CHARS]
    return f"{plain[: MAX_NAME - _HASH_CHARS - 1]}_{mark}"
