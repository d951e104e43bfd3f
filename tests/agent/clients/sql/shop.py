"""Another database than ChatMind's own, with a role that can read, made as docs/tools.md says."""

import re
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import asyncpg

from services.agent.clients.sql.file import SqlSettings
from tests.conftest import PostgresServer
from tests.repo.tree import ROOT

OWN = (0, 0)
"""The identity of no database."""

_CONTENT = """
CREATE TABLE customers (id integer PRIMARY KEY, name text NOT NULL, secret text);
CREATE TABLE orders (
    id serial PRIMARY KEY, customer_id integer REFERENCES customers, total numeric);
CREATE TABLE salaries (id integer, amount integer);
CREATE SCHEMA hidden;
CREATE TABLE hidden.keys (id integer);
CREATE SEQUENCE numbers;
CREATE VIEW spending AS
    SELECT name, sum(total) AS total FROM customers JOIN orders ON customer_id = customers.id
    GROUP BY name;
COMMENT ON TABLE customers IS 'who buys';
COMMENT ON COLUMN customers.name IS 'first and\nlast name';
INSERT INTO customers VALUES (1, 'Ann', 's1'), (2, 'Bob | Co', 's2');
INSERT INTO orders (customer_id, total) VALUES (1, 10.50), (1, 2), (2, 7);
INSERT INTO salaries VALUES (1, 8675309);
"""


@dataclass(frozen=True, slots=True)
class Shop:
    """The database.

    Attributes:
        admin: its address for its owner.
        reader: its address for the role that can read.
        role: the name of that role.
    """

    admin: str
    reader: str
    role: str

    def settings(self, **changes: object) -> SqlSettings:
        values: dict[str, object] = {"name": "shop", "dsn": self.reader, "seconds": 5.0, **changes}
        return SqlSettings(**values)  # type: ignore[arg-type]

    async def run(self, *statements: str) -> object:
        """Run statements as the owner; gives the value of the last."""
        connection = await asyncpg.connect(self.admin)
        try:
            value: object = None
            for statement in statements:
                value = await connection.fetchval(statement.replace("{role}", self.role))
            return value
        finally:
            await connection.close()


def documented_role() -> str:
    """What docs/tools.md tells an operator to run."""
    text = (ROOT / "docs" / "tools.md").read_text(encoding="utf-8")
    found = re.search(r"```sql\n(CREATE ROLE.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]


@asynccontextmanager
async def open_shop(server: PostgresServer) -> AsyncIterator[Shop]:
    """The database for as long as the block lasts."""
    role = f"reader_{secrets.token_hex(6)}"
    async with server.database() as admin:
        name = urlsplit(admin).path.strip("/")
        host = urlsplit(admin).netloc.rpartition("@")[2]
        commands = (
            documented_role()
            .replace("shop_reader", role)
            .replace("DATABASE shop", f"DATABASE {name}")
        )
        reader = f"postgresql://{role}:choose-a-long-one@{host}/{name}?sslmode=disable"
        connection = await asyncpg.connect(admin)
        try:
            await connection.execute(_CONTENT)
            await connection.execute(commands)
            yield Shop(admin, reader, role)
            await connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
        finally:
            await connection.close()
