"""What must hold of a role before a model may write its queries: it can read, and nothing else.

What such a role could still do by functions, `functions.py` refuses; what is left stays within the
database, which is why it must not be ChatMind's own.
"""

from typing import Final

import asyncpg

from services.agent.domain.tools.sql.tables import Column, Table
from services.common.db import PooledConnection
from services.common.errors import StartupError
from services.common.session import Connection

_MOST_TOLD: Final = 5
_SUPERUSER: Final = "is a superuser"

_IDENTITY = """
SELECT control.system_identifier, database.oid
FROM pg_control_system() AS control, pg_database AS database
WHERE database.datname = current_database()
"""
# `SET ROLE` counts: what the role can become, it can do.
_PROBLEMS = """
WITH mine AS (
    SELECT oid, rolname, rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls
    FROM pg_roles WHERE pg_has_role(current_user, oid, 'MEMBER')
), here AS (
    SELECT oid, nspname FROM pg_namespace
    WHERE nspname NOT IN ('pg_catalog', 'information_schema') AND nspname !~ '^pg_(toast|temp)'
), relation AS (
    SELECT class.oid, class.relkind, class.relowner,
        format('%I.%I', here.nspname, class.relname) AS name
    FROM pg_class AS class JOIN here ON here.oid = class.relnamespace
    WHERE class.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
), routine AS (
    SELECT function.oid, function.prosecdef, function.prolang, function.proowner,
        format('%I.%I', here.nspname, function.proname) AS name,
        extension.extname
    FROM pg_proc AS function JOIN here ON here.oid = function.pronamespace
    LEFT JOIN pg_depend AS depend
        ON depend.classid = 'pg_proc'::regclass AND depend.objid = function.oid
        AND depend.refclassid = 'pg_extension'::regclass AND depend.deptype = 'e'
    LEFT JOIN pg_extension AS extension ON extension.oid = depend.refobjid
    WHERE has_function_privilege(function.oid, 'EXECUTE')
)
SELECT 'is a superuser' FROM mine WHERE rolsuper
UNION SELECT 'has CREATEROLE' FROM mine WHERE rolcreaterole
UNION SELECT 'has CREATEDB' FROM mine WHERE rolcreatedb
UNION SELECT 'has REPLICATION' FROM mine WHERE rolreplication
UNION SELECT 'has BYPASSRLS' FROM mine WHERE rolbypassrls
UNION SELECT 'is a member of ' || rolname FROM mine WHERE rolname LIKE 'pg\\_%'
UNION SELECT 'has no CONNECTION LIMIT' FROM pg_roles
    WHERE rolname = current_user AND rolconnlimit < 0
UNION SELECT 'owns the database or may create schemas in it' FROM pg_database
    WHERE datname = current_database() AND (
        pg_has_role(datdba, 'MEMBER') OR has_database_privilege(oid, 'CREATE'))
UNION SELECT 'may create objects in the schema ' || nspname FROM here
    WHERE has_schema_privilege(oid, 'CREATE')
UNION SELECT 'owns ' || name FROM relation WHERE pg_has_role(relowner, 'MEMBER')
UNION SELECT 'may write ' || name FROM relation WHERE relkind <> 'S' AND (
    has_table_privilege(oid, 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
    OR has_any_column_privilege(oid, 'INSERT, UPDATE, REFERENCES'))
UNION SELECT 'may advance the sequence ' || name FROM relation
    WHERE CASE WHEN relkind = 'S' THEN has_sequence_privilege(oid, 'USAGE, UPDATE') END
UNION SELECT 'may call ' || routine.name || ', which acts with the rights of its owner' FROM routine
    WHERE prosecdef
UNION SELECT 'may call ' || routine.name || ', which reaches out of the database' FROM routine
    LEFT JOIN pg_language ON pg_language.oid = routine.prolang
    WHERE extname IN ('dblink', 'adminpack', 'http', 'pg_net', 'pg_background', 'pg_cron')
       OR NOT (lanpltrusted OR lanname IN ('c', 'internal'))
UNION SELECT 'may write large objects: before PostgreSQL 16, revoke ' || signature
    FROM unnest(ARRAY[
        'lo_creat(integer)', 'lo_create(oid)', 'lo_from_bytea(oid, bytea)', 'lo_unlink(oid)',
        'lo_put(oid, bigint, bytea)', 'lowrite(integer, bytea)', 'lo_truncate(integer, integer)'
    ]) AS signature
    WHERE current_setting('server_version_num')::integer < 160000
      AND has_function_privilege('pg_catalog.' || signature, 'EXECUTE')
"""
_TABLES = """
SELECT
    format('%I.%I', here.nspname, class.relname) AS name,
    here.nspname || '.' || class.relname AS plain,
    obj_description(class.oid, 'pg_class') AS comment,
    ARRAY (
        SELECT ARRAY[
            quote_ident(attribute.attname), format_type(attribute.atttypid, attribute.atttypmod),
            coalesce(col_description(class.oid, attribute.attnum), '')]
        FROM pg_attribute AS attribute
        WHERE attribute.attrelid = class.oid AND attribute.attnum > 0 AND NOT attisdropped
          AND has_column_privilege(class.oid, attribute.attnum, 'SELECT')
        ORDER BY attribute.attnum LIMIT 100
    ) AS columns
FROM pg_class AS class JOIN pg_namespace AS here ON here.oid = class.relnamespace
WHERE class.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT class.relispartition
  AND here.nspname NOT IN ('pg_catalog', 'information_schema') AND here.nspname !~ '^pg_toast'
  AND has_schema_privilege(here.oid, 'USAGE')
  AND has_any_column_privilege(class.oid, 'SELECT')
  AND ($1::text[] = '{}' OR here.nspname || '.' || class.relname = ANY ($1))
ORDER BY 1 LIMIT 500
"""


class UnsafeDatabaseError(StartupError):
    """Why a database must not be asked by models, as one line for an operator."""


async def read_identity(connection: "Connection | PooledConnection") -> tuple[int, int]:
    """Which database this is, whatever it is called: that of its server, and its own number.

    A copy that PostgreSQL replicates has the same identity.

    Raises:
        asyncpg.PostgresError: it does not say.
    """
    row = await connection.fetchrow(_IDENTITY)
    if row is None:
        raise asyncpg.PostgresError("the server does not say which database this is")
    return row[0], row[1]


async def check_role(connection: Connection, *, where: str) -> None:
    """Check that the role of a connection can read and nothing else.

    Args:
        connection: to the database.
        where: names the database in the error.

    Raises:
        UnsafeDatabaseError: it can do more; says what.
    """
    found = sorted(row[0] for row in await connection.fetch(_PROBLEMS))
    if not found:
        return
    if _SUPERUSER in found:
        found = [_SUPERUSER]  # which brings all the others with it
    role = await connection.fetchval("SELECT current_user")
    more = f"; and {len(found) - _MOST_TOLD} more" if len(found) > _MOST_TOLD else ""
    raise UnsafeDatabaseError(
        f"{where}: its role {role} can do more than read: {'; '.join(found[:_MOST_TOLD])}{more}. "
        "docs/tools.md shows how to make one that cannot"
    )


async def read_tables(
    connection: Connection, wanted: tuple[str, ...], *, where: str
) -> tuple[Table, ...]:
    """The tables and views that can be read, with their columns.

    Args:
        connection: to the database.
        wanted: as "schema.name"; empty stands for all.
        where: names the database in the error.

    Raises:
        UnsafeDatabaseError: one that is wanted is not there, or cannot be read.
    """
    rows = await connection.fetch(_TABLES, list(wanted))
    missing = set(wanted) - {row["plain"] for row in rows}
    if missing:
        told = ", ".join(sorted(missing)[:_MOST_TOLD])
        raise UnsafeDatabaseError(f"{where}: its role cannot read {told}")
    return tuple(
        Table(
            name=row["name"],
            columns=tuple(Column(*each) for each in row["columns"]),
            comment=row["comment"] or "",
        )
        for row in rows
    )
