"""The keys of hints: what they say may have changed."""

from services.knowledge.domain.models import DocumentId

CHANNEL = "knowledge"
"""The channel that carries all of them."""

INGEST_QUEUE = "ingest"
"""There may be a document to claim."""


def document_key(document_id: DocumentId) -> str:
    """The document may have changed."""
    return f"document:{document_id}"
