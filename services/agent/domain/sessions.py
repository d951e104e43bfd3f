"""Conversations: opening, naming and deleting them, and reading what was said."""

_TITLE_CHARACTERS = 80
_MAX_TITLE_BYTES = 400


def title_of(text: str) -> str:
    """A session's title from its first message: the beginning of its first line with words."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    title = " ".join(line.split())
    if len(title) > _TITLE_CHARACTERS:
        title = title[: _TITLE_CHARACTERS - 1].rstrip() + "…"
    return title.encode()[:_MAX_TITLE_BYTES].decode(errors="ignore")
