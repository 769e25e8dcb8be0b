"""What a migration takes away from gateways that do not know it yet: found by comparing tables before and after."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, inspect


@dataclass(frozen=True)
class TableShape:
    """A table as a gateway depends on it."""

    columns: dict[str, tuple[str, bool, bool]]
    """By name: the type, whether it may be null, and whether a row may leave it out."""
    rules: frozenset[str]
    """What a row must fulfil: keys, unique values, references, checks."""


def shapes(connection: Connection) -> dict[str, TableShape]:
    found = inspect(connection)
    return {
        name: TableShape(
            {column["name"]: _column(column) for column in found.get_columns(name)},
            frozenset(
                str(rule)
                for rule in (
                    sorted(found.get_pk_constraint(name)["constrained_columns"]),
                    *(sorted(one["column_names"]) for one in found.get_unique_constraints(name)),
                    *(sorted(map(str, one["column_names"])) for one in found.get_indexes(name) if one["unique"]),
                    *((one["constrained_columns"], one["referred_table"]) for one in found.get_foreign_keys(name)),
                    *(one["sqltext"] for one in found.get_check_constraints(name)),
                )
            ),
        )
        for name in found.get_table_names()
        if name != "alembic_version"
    }


def _column(column: Any) -> tuple[str, bool, bool]:
    may_be_null = bool(column["nullable"])
    return str(column["type"]), may_be_null, may_be_null or column["default"] is not None


def contractions(before: dict[str, TableShape], after: dict[str, TableShape]) -> Iterator[str]:
    """What an older gateway would stumble over."""
    for name, table in before.items():
        if name not in after:
            yield f"the table {name} is gone"
            continue
        now = after[name]
        for column, (kind, may_be_null, _) in table.columns.items():
            if column not in now.columns:
                yield f"the column {name}.{column} is gone"
            elif now.columns[column][0] != kind:
                yield f"the column {name}.{column} has another type"
            elif may_be_null and not now.columns[column][1]:
                yield f"the column {name}.{column} may no longer be null"
            elif not may_be_null and now.columns[column][1]:
                yield f"the column {name}.{column} may be null, which older gateways do not expect"
        for column in now.columns.keys() - table.columns.keys():
            if not now.columns[column][2]:
                yield f"the new column {name}.{column} must be given, and older gateways do not know it"
        for rule in now.rules - table.rules:
            yield f"rows of {name} must fulfil something new: {rule}"
