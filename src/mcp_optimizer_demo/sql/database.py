"""Reads a SQLite file that cannot be changed through here, whatever the statement says.

SQLite itself refuses: the file is opened immutable and read-only, query_only is set, an authorizer allows only reading,
and a progress handler ends statements that run too long. Called by the tools.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp_optimizer_demo.toolserver import ToolFault

SHOP_DATABASE = Path(__file__).parent / "shop.sqlite"

STEP_INSTRUCTIONS = 10_000
STEPS_PER_STATEMENT = 1_000
LONGEST_VALUE_BYTES = 1_000_000

READING = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})
SCHEMA_PRAGMAS = frozenset({"table_info", "foreign_key_list", "index_list", "index_info"})
FORBIDDEN_FUNCTIONS = frozenset({"load_extension"})


@dataclass(frozen=True, slots=True)
class Rows:
    """The result of a statement: the names of its columns, its rows, and whether there are more."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    are_cut: bool = False


def only_reading(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """The authorizer: SQLite asks it about each thing a statement would do, before running it."""
    if action == sqlite3.SQLITE_PRAGMA:
        return sqlite3.SQLITE_OK if first in SCHEMA_PRAGMAS else sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION and second in FORBIDDEN_FUNCTIONS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in READING else sqlite3.SQLITE_DENY


@dataclass(frozen=True, slots=True)
class ReadOnlyDatabase:
    """One SQLite file; every statement gets its own connection and a fresh allowance of work."""

    path: Path

    def select(self, statement: str, values: Sequence[Any] = (), *, most: int) -> Rows:
        """Run one reading statement and return at most so many rows. One more is fetched, to know whether there is."""
        with self._connection() as connection, explained_faults():
            cursor = connection.execute(statement, values)
            if cursor.description is None:
                raise ToolFault("The statement returns no rows. Pass one SQL SELECT statement.")
            columns = tuple(column[0] for column in cursor.description)
            found = tuple(cursor.fetchmany(most + 1))
            return Rows(columns, found[:most], are_cut=len(found) > most)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        uri = f"{self.path.as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.execute("PRAGMA query_only = ON")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE_BYTES)
            connection.set_authorizer(only_reading)
            steps = iter(range(STEPS_PER_STATEMENT))
            connection.set_progress_handler(lambda: next(steps, None) is None, STEP_INSTRUCTIONS)
            yield connection


@contextmanager
def explained_faults() -> Iterator[None]:
    """Turn SQLite's refusals into messages that say what to do."""
    try:
        yield
    # Up to Python 3.11, several statements at once raise a Warning, which is not an sqlite3.Error.
    except (sqlite3.Error, sqlite3.Warning) as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            raise ToolFault(
                f"The query was stopped after {STEPS_PER_STATEMENT * STEP_INSTRUCTIONS:,} steps of work. "
                "Narrow it with WHERE or LIMIT, or end its recursion."
            ) from None
        reason = str(error).rstrip(".")
        raise ToolFault(
            f"SQL refused: {reason}. Pass one SELECT statement without parameters; the database is read-only. "
            "describeTable and searchSchema show the names that exist."
        ) from None
