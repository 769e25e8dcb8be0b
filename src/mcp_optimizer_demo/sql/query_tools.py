"""The tools that run a caller's own SQL: secureDatabaseQuery and explainQuery."""

import math
from typing import Any

from mcp_optimizer_demo.json_schema import arguments, array, boolean, integer, record, result, string
from mcp_optimizer_demo.sql.database import ReadOnlyDatabase
from mcp_optimizer_demo.toolserver import Arguments, DemoTool

QUERY = string(
    'One SQL SELECT statement in the SQLite dialect, without parameters, e.g. "SELECT * FROM customers LIMIT 100". '
    "Common table expressions, joins, aggregates and window functions are supported.",
    minLength=1,
    maxLength=10_000,
)
CELL = {"type": ["string", "number", "null"]}
ROWS = array({"type": "array", "items": CELL}, "The rows, each a list of values in the order of columnNames.")
COLUMN_NAMES = array({"type": "string"}, "Names of the result columns.")
MORE_ROWS = boolean("Whether there are more rows than maxRows, which are not returned.")
MOST_PLAN_STEPS = 200


def plain_row(row: tuple[Any, ...]) -> list[Any]:
    return [plain_value(value) for value in row]


def plain_value(value: Any) -> Any:
    """A value as JSON, which has neither binary values nor infinity: those become text."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def run_query(database: ReadOnlyDatabase, args: Arguments) -> dict[str, Any]:
    found = database.select(args["queryDescription"], most=args.get("maxRows", 100))
    return {
        "query": args["queryDescription"],
        "rowCount": len(found.rows),
        "truncated": found.are_cut,
        "columnNames": list(found.columns),
        "data": [plain_row(row) for row in found.rows],
    }


def explain(database: ReadOnlyDatabase, args: Arguments) -> dict[str, Any]:
    found = database.select(f"EXPLAIN QUERY PLAN {args['queryDescription']}", most=MOST_PLAN_STEPS)
    steps = [{"id": row[0], "parentId": row[1], "detail": row[3]} for row in found.rows]
    scans = [step["detail"] for step in steps if step["detail"].startswith("SCAN") and "USING" not in step["detail"]]
    return {"query": args["queryDescription"], "truncated": found.are_cut, "steps": steps, "fullScans": scans}


QUERY_TOOLS = (
    DemoTool(
        name="secureDatabaseQuery",
        title="Secure Database Query",
        description="Run one SQL SELECT statement on the shop database and return its rows. The database is read-only: "
        "statements that write, attach files or change settings are refused by the database itself, and queries that "
        "run too long are stopped. Use listTables and describeTable first to learn the table and column names.",
        input_schema=arguments(
            {
                "queryDescription": QUERY,
                "maxRows": integer(
                    "The largest number of rows to return. If there are more, the result says so in truncated.",
                    minimum=1,
                    maximum=1000,
                    default=100,
                ),
            },
            required=("queryDescription",),
        ),
        output_schema=result(
            {
                "query": string("The statement that was run."),
                "rowCount": integer("Number of rows returned.", minimum=0),
                "truncated": MORE_ROWS,
                "columnNames": COLUMN_NAMES,
                "data": ROWS,
            }
        ),
        handler=run_query,
    ),
    DemoTool(
        name="explainQuery",
        title="Explain Query",
        description="Show how the database would run a SELECT statement, without running it: which tables it scans, "
        "which indexes it uses and in which order. Use it to find out why a query is slow.",
        input_schema=arguments({"queryDescription": QUERY}, required=("queryDescription",)),
        output_schema=result(
            {
                "query": string("The statement that was explained."),
                "truncated": boolean(f"Whether there are more than {MOST_PLAN_STEPS} steps."),
                "steps": array(
                    record(
                        {
                            "id": integer("Number of the step."),
                            "parentId": integer("Step this one belongs to; 0 for the top."),
                            "detail": string("What the step does."),
                        },
                        required=("id", "parentId", "detail"),
                    ),
                    "The steps of the plan.",
                ),
                "fullScans": array({"type": "string"}, "The steps that read a whole table without an index."),
            }
        ),
        handler=explain,
    ),
)
