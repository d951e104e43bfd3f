"""The keys of hints: what they say may have changed."""

from typing import Final

from services.knowledge.domain.models import DocumentId

CHANNEL: Final = "knowledge"
"""The channel that carries all of them."""

INGEST_QUEUE: Final = "ingest"
"""There may be a document to claim."""


def document_key(document_id: DocumentId) -> str:
    """The document may have changed."""
    return f"document:{document_id}"
