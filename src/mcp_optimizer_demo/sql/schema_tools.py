"""The tools that describe the schema and the content of tables: listTables, describeTable and others."""

from typing import Any

from mcp_optimizer_demo.json_schema import arguments, array, boolean, integer, nullable, record, result, string
from mcp_optimizer_demo.sql.database import ReadOnlyDatabase
from mcp_optimizer_demo.sql.query_tools import CELL, COLUMN_NAMES, MORE_ROWS, ROWS, plain_row
from mcp_optimizer_demo.toolserver import Arguments, DemoTool, ToolFault

MOST = 1000
TABLE_NAME = string('Name of the table, as returned by listTables, e.g. "orders".', minLength=1, maxLength=100)


def table_names(database: ReadOnlyDatabase) -> list[str]:
    found = database.select("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name", most=MOST)
    return [row[0] for row in found.rows]


def known_table(database: ReadOnlyDatabase, name: str) -> str:
    """The name as the schema spells it; only such a name is ever put into a statement."""
    names = table_names(database)
    for table in names:
        if table.casefold() == name.casefold():
            return table
    raise ToolFault(f"There is no table named '{name}'. Tables: {', '.join(names)}.")


def count_rows(database: ReadOnlyDatabase, table: str) -> int:
    count = database.select(f'SELECT count(*) FROM "{table}"', most=1).rows[0][0]  # noqa: S608 - a known table
    return int(count)


def columns_of(database: ReadOnlyDatabase, table: str) -> list[dict[str, Any]]:
    found = database.select(f'PRAGMA table_info("{table}")', most=MOST)
    return [
        {
            "name": name,
            "type": kind,
            "isNullable": not not_null and not key,
            "defaultValue": default,
            "isPrimaryKey": key > 0,
        }
        for _, name, kind, not_null, default, key in found.rows
    ]


def foreign_keys_of(database: ReadOnlyDatabase, table: str) -> list[dict[str, Any]]:
    found = database.select(f'PRAGMA foreign_key_list("{table}")', most=MOST)
    return [
        {"table": table, "column": row[3], "referencedTable": row[2], "referencedColumn": row[4]}
        for row in sorted(found.rows)
    ]


def list_tables(database: ReadOnlyDatabase, _args: Arguments) -> dict[str, Any]:
    return {
        "tables": [
            {
                "name": name,
                "rowCount": count_rows(database, name),
                "columnNames": [column["name"] for column in columns_of(database, name)],
            }
            for name in table_names(database)
        ]
    }


def describe_table(database: ReadOnlyDatabase, args: Arguments) -> dict[str, Any]:
    table = known_table(database, args["tableName"])
    statement = database.select("SELECT sql FROM sqlite_master WHERE name = ?", [table], most=1).rows[0][0]
    indexes = database.select(f'PRAGMA index_list("{table}")', most=MOST)
    return {
        "tableName": table,
        "columns": columns_of(database, table),
        "foreignKeys": foreign_keys_of(database, table),
        "indexes": sorted(row[1] for row in indexes.rows),
        "createStatement": statement,
    }


def get_foreign_keys(database: ReadOnlyDatabase, args: Arguments) -> dict[str, Any]:
    keys = [key for table in table_names(database) for key in foreign_keys_of(database, table)]
    if "tableName" in args:
        table = known_table(database, args["tableName"])
        keys = [key for key in keys if table in (key["table"], key["referencedTable"])]
    return {"foreignKeys": keys}


def sample_rows(database: ReadOnlyDatabase, args: Arguments) -> dict[str, Any]:
    """Rows spread evenly over the table, so a sample does not only show its beginning."""
    table, wanted = known_table(database, args["tableName"]), args.get("maxRows", 5)
    count = count_rows(database, table)
    step = max(1, count // wanted)
    statement = (
        f'SELECT * FROM (SELECT *, row_number() OVER () AS place FROM "{table}") '  # noqa: S608 - a known table
        "WHERE (place - 1) % ? = 0"
    )
    found = database.select(statement, [step], most=wanted)
    return {
        "tableName": table,
        "rowCount": len(found.rows),
        "truncated": count > len(found.rows),
        "columnNames": list(found.columns[:-1]),
        "data": [plain_row(row[:-1]) for row in found.rows],
    }


def table_statistics(database: ReadOnlyDatabase, args: Arguments) -> dict[str, Any]:
    table = known_table(database, args["tableName"])
    columns = []
    for column in columns_of(database, table):
        name = column["name"]
        statement = (
            f'SELECT count("{name}"), count(DISTINCT "{name}"), min("{name}"), max("{name}") '  # noqa: S608 - known
            f'FROM "{table}"'
        )
        filled, distinct, smallest, largest = database.select(statement, most=1).rows[0]
        columns.append({"name": name, "filled": filled, "distinct": distinct, "smallest": smallest, "largest": largest})
    return {"tableName": table, "rowCount": count_rows(database, table), "columns": columns}


def search_schema(database: ReadOnlyDatabase, args: Arguments) -> dict[str, Any]:
    word = args["keyword"].casefold()
    matches: list[dict[str, str | None]] = []
    for table in table_names(database):
        if word in table.casefold():
            matches.append({"tableName": table, "columnName": None, "type": None})
        matches += [
            {"tableName": table, "columnName": column["name"], "type": column["type"]}
            for column in columns_of(database, table)
            if word in column["name"].casefold()
        ]
    return {"keyword": args["keyword"], "matches": matches}


FOREIGN_KEY = record(
    {
        "table": string("Table that holds the reference."),
        "column": string("Column that holds the reference."),
        "referencedTable": string("Table it points to."),
        "referencedColumn": string("Column it points to."),
    },
    required=("table", "column", "referencedTable", "referencedColumn"),
)
COLUMN = record(
    {
        "name": string("Name of the column."),
        "type": string("Declared type."),
        "isNullable": boolean("Whether it may be empty."),
        "defaultValue": nullable(string("Default value as SQL, or null.")),
        "isPrimaryKey": boolean("Whether it belongs to the primary key."),
    },
    required=("name", "type", "isNullable", "isPrimaryKey"),
)

SCHEMA_TOOLS = (
    DemoTool(
        name="listTables",
        title="List Tables",
        description="List the tables of the shop database with their number of rows and the names of their columns. "
        "Call this first when you do not know the schema.",
        input_schema=arguments({}),
        output_schema=result(
            {
                "tables": array(
                    record(
                        {
                            "name": string("Name of the table."),
                            "rowCount": integer("Number of rows."),
                            "columnNames": COLUMN_NAMES,
                        },
                        required=("name", "rowCount", "columnNames"),
                    ),
                    "The tables by name.",
                )
            }
        ),
        handler=list_tables,
    ),
    DemoTool(
        name="describeTable",
        title="Describe Table",
        description="Describe one table: its columns with type and default, primary key, foreign keys, indexes and the "
        "statement that created it.",
        input_schema=arguments({"tableName": TABLE_NAME}, required=("tableName",)),
        output_schema=result(
            {
                "tableName": string("Name of the table."),
                "columns": array(COLUMN, "The columns in order."),
                "foreignKeys": array(FOREIGN_KEY, "References to other tables."),
                "indexes": array({"type": "string"}, "Names of the indexes."),
                "createStatement": string("The CREATE TABLE statement."),
            }
        ),
        handler=describe_table,
    ),
    DemoTool(
        name="getForeignKeys",
        title="Get Foreign Keys",
        description="List the foreign keys of the whole database, or those that lead from or to one table. Use it to "
        "find out how to join tables.",
        input_schema=arguments({"tableName": {**TABLE_NAME, "description": "Only return keys from or to this table."}}),
        output_schema=result({"foreignKeys": array(FOREIGN_KEY, "The foreign keys.")}),
        handler=get_foreign_keys,
    ),
    DemoTool(
        name="sampleRows",
        title="Sample Rows",
        description="Return a few rows of a table, spread evenly over it, to see what its values look like.",
        input_schema=arguments(
            {
                "tableName": TABLE_NAME,
                "maxRows": integer(
                    "The largest number of rows to return. If the table has more, the result says so in truncated.",
                    minimum=1,
                    maximum=50,
                    default=5,
                ),
            },
            required=("tableName",),
        ),
        output_schema=result(
            {
                "tableName": string("Name of the table."),
                "rowCount": integer("Number of rows returned."),
                "truncated": MORE_ROWS,
                "columnNames": COLUMN_NAMES,
                "data": ROWS,
            }
        ),
        handler=sample_rows,
    ),
    DemoTool(
        name="tableStatistics",
        title="Table Statistics",
        description="Count the rows of a table and, for each column, the filled and the distinct values, with the "
        "smallest and the largest one.",
        input_schema=arguments({"tableName": TABLE_NAME}, required=("tableName",)),
        output_schema=result(
            {
                "tableName": string("Name of the table."),
                "rowCount": integer("Number of rows."),
                "columns": array(
                    record(
                        {
                            "name": string("Name of the column."),
                            "filled": integer("Number of rows where it is not null."),
                            "distinct": integer("Number of distinct values."),
                            "smallest": {**CELL, "description": "Smallest value."},
                            "largest": {**CELL, "description": "Largest value."},
                        },
                        required=("name", "filled", "distinct"),
                    ),
                    "The columns in order.",
                ),
            }
        ),
        handler=table_statistics,
    ),
    DemoTool(
        name="searchSchema",
        title="Search Schema",
        description='Find tables and columns whose name contains a word, e.g. "price".',
        input_schema=arguments(
            {"keyword": string("Part of a table or column name; case does not matter.", minLength=1, maxLength=100)},
            required=("keyword",),
        ),
        output_schema=result(
            {
                "keyword": string("The word searched for."),
                "matches": array(
                    record(
                        {
                            "tableName": string("Table found, or the table of the column."),
                            "columnName": nullable(string("Column found; null when the table itself matches.")),
                            "type": nullable(string("Declared type of the column.")),
                        },
                        required=("tableName", "columnName"),
                    ),
                    "What was found, table by table.",
                ),
            }
        ),
        handler=search_schema,
    ),
)
