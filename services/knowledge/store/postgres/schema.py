"""Where the service's tables are, and how they come to be."""

from pathlib import Path
from typing import Final

SCHEMA: Final = "knowledge"
MIGRATIONS: Final = Path(__file__).parent.parent / "migrations"
EXTENSIONS: Final = {"vector": "0.8.4"}
"""pgvector before 0.8.4 has faults where HNSW indexes are built or vacuumed."""
