"""Where the service's tables are, and how they come to be."""

from pathlib import Path
from typing import Final

SCHEMA: Final = "knowledge"
MIGRATIONS: Final = Path(__file__).parent.parent / "migrations"
