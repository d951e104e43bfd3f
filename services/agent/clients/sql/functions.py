"""Functions that no query of a model's may name, as a READ ONLY transaction does not stop them.

Such a transaction writes no table, and is never committed. Yet functions can act beyond it: write
to the log that replicas read, end other queries of the role, take locks and numbers, or run a query
that stands in a string. PostgreSQL calls those volatile; so all volatile ones of its own are
refused, those of later versions as well, but for the harmless ones that are named here.
"""

import re
from collections.abc import Collection
from typing import Final

from services.agent.domain.tools.errors import RetryToolError
from services.common.session import Connection

_HARMLESS: Final = frozenset(
    {
        "array_sample",
        "array_shuffle",
        "clock_timestamp",
        "current_query",
        "gen_random_uuid",
        "pg_database_size",
        "pg_indexes_size",
        "pg_is_in_recovery",
        "pg_partition_ancestors",
        "pg_partition_tree",
        "pg_relation_size",
        "pg_sleep",
        "pg_sleep_for",
        "pg_sleep_until",
        "pg_table_size",
        "pg_total_relation_size",
        "random",
        "random_normal",
        "timeofday",
        "uuidv4",
        "uuidv7",
    }
)
# The transaction stops these, and its error says better why.
_STOPPED: Final = frozenset({"lo_creat", "lo_create", "lo_from_bytea", "lo_put", "lo_unlink"})
# They are called stable, and use up a number of the server's for each transaction.
_NUMBERED: Final = frozenset({"pg_current_xact_id", "txid_current"})
# Functions of the last two extensions run queries that stand in strings. What takes an argument of
# the type `internal`, and triggers, cannot be called.
_NAMES: Final = """
SELECT DISTINCT proname::text FROM pg_proc AS function
LEFT JOIN pg_depend AS depend
    ON depend.classid = 'pg_proc'::regclass AND depend.objid = function.oid
    AND depend.refclassid = 'pg_extension'::regclass AND depend.deptype = 'e'
LEFT JOIN pg_extension AS extension ON extension.oid = depend.refobjid
WHERE NOT 'internal'::regtype = ANY (proargtypes::oid[]) AND prorettype <> 'trigger'::regtype
  AND (pronamespace = 'pg_catalog'::regnamespace AND provolatile = 'v'
    OR extname IN ('tablefunc', 'xml2'))
"""
_ESCAPED: Final = re.compile(r'u&"', re.IGNORECASE)


async def read_refused(connection: Connection) -> frozenset[str]:
    """The names of the functions that a query on this server may not name."""
    rows = await connection.fetch(_NAMES)
    return frozenset({row[0] for row in rows} - _HARMLESS - _STOPPED | _NUMBERED)


def check_functions(sql: str, refused: Collection[str]) -> None:
    """Check that a query names none of these functions, be it in a string or a comment.

    Args:
        sql: the query.
        refused: names, in lower case.

    Raises:
        RetryToolError: it names one, or names something in escapes.
    """
    if _ESCAPED.search(sql):
        raise RetryToolError('names cannot be written in escapes, as in U&"..."')
    for word in re.findall("[a-z_]+[a-z0-9_]*", sql.lower()):
        if word in refused:
            raise RetryToolError(f"the query may not use {word}, as it does more than read")
