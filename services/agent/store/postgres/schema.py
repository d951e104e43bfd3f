"""Where the agent service's tables are and how they come to be."""

from pathlib import Path
from typing import Final

SCHEMA: Final = "agent"
MIGRATIONS: Final = Path(__file__).parent.parent / "migrations"
