"""Which databases models may ask: CHATMIND_SQL_FILE.

[databases.shop]
url_env = "SHOP_DATABASE_URL"           # the variable that holds the address, with a role that
                                        # can read and nothing else
description = "orders and customers of the shop"
tables = ["public.orders", "public.customers"]  # what models are told of; all if left out
seconds = 10                            # timeout of one query
max_rows = 200
connections = 4                         # queries at a time, of one process
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints

from services.agent.clients.settings_file import Strict, read_settings_file
from services.common.errors import StartupError

_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
_Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=200)]
_Table = Annotated[str, StringConstraints(pattern=r"^[^.\s]+\.[^.\s]+$", max_length=200)]


class SqlFileError(StartupError):
    """What is wrong with the configuration of databases, as one line for an operator."""


@dataclass(frozen=True, slots=True)
class SqlSettings:
    """One database that models may ask.

    Attributes:
        name: what it is called.
        dsn: its address, password included.
        description: what is in it.
        tables: as "schema.name", those that models are told of; empty stands for all.
        seconds: timeout of one query, the connection included.
        max_rows: rows of one result.
        connections: queries at a time.
    """

    name: str
    dsn: str
    description: str = ""
    tables: tuple[str, ...] = ()
    seconds: float = 10.0
    max_rows: int = 200
    connections: int = 4

    def __repr__(self) -> str:
        """Without the password."""
        return f"SqlSettings({self.name!r})"


def load_databases(path: Path | None, environ: Mapping[str, str]) -> tuple[SqlSettings, ...]:
    """The databases that are configured.

    Args:
        path: the file; None where there is none.
        environ: the environment; an empty variable counts as unset.

    Raises:
        SqlFileError: the file cannot be read, or something in it or in a variable is wrong.
    """
    if path is None:
        return ()
    return tuple(
        SqlSettings(
            name=name,
            dsn=_dsn(database.url_env, environ, where=f"{path}: databases.{name}"),
            description=database.description,
            tables=database.tables,
            seconds=database.seconds,
            max_rows=database.max_rows,
            connections=database.connections,
        )
        for name, database in read_settings_file(path, _File, error=SqlFileError).databases.items()
    )


class _Database(Strict):
    url_env: _Variable
    description: str = Field(default="", max_length=1000)
    tables: tuple[_Table, ...] = Field(default=(), max_length=1000)
    seconds: float = Field(default=10.0, gt=0, le=60)
    max_rows: int = Field(default=200, ge=1, le=1000)
    connections: int = Field(default=4, ge=1, le=100)


class _File(Strict):
    databases: dict[_Name, _Database] = Field(min_length=1, max_length=20)


def _dsn(variable: str, environ: Mapping[str, str], *, where: str) -> str:
    value = environ.get(variable, "")
    if not value:
        raise SqlFileError(f"{where}: the variable {variable}, named by url_env, is not set")
    if not value.startswith(("postgresql://", "postgres://")):
        raise SqlFileError(f"{where}: {variable} must be an address of PostgreSQL, postgresql://…")
    return value
