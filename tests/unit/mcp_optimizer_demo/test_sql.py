"""The database server: its answers, and that no call can change the data or keep it busy."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from mcp_optimizer_demo.sql.build_database import build_database
from mcp_optimizer_demo.sql.database import SHOP_DATABASE
from tests.unit.mcp_optimizer_demo.calling import Caller


def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        return list(connection.iterdump())


def test_the_script_reproduces_the_shipped_database(tmp_path: Path) -> None:
    build_database(tmp_path / "shop.sqlite")
    assert dump(tmp_path / "shop.sqlite") == dump(SHOP_DATABASE)
    assert SHOP_DATABASE.stat().st_size < 300_000


def test_the_shipped_database_holds_its_foreign_keys() -> None:
    with closing(sqlite3.connect(f"{SHOP_DATABASE.as_uri()}?mode=ro", uri=True)) as connection:
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


async def test_a_hundred_customers_have_three_columns_each(sql: Caller) -> None:
    answer = await sql("secureDatabaseQuery", queryDescription="SELECT * FROM customers LIMIT 100", maxRows=100)
    assert list(answer) == ["query", "rowCount", "truncated", "columnNames", "data"]
    assert (answer["rowCount"], answer["columnNames"]) == (100, ["id", "name", "email"])
    assert len(answer["data"]) == 100
    assert all(len(row) == 3 for row in answer["data"])


async def test_rows_are_cut_off_at_max_rows_which_is_100_by_default(sql: Caller) -> None:
    cut = await sql("secureDatabaseQuery", queryDescription="SELECT * FROM customers")
    assert (cut["rowCount"], len(cut["data"]), cut["truncated"]) == (100, 100, True)
    complete = await sql("secureDatabaseQuery", queryDescription="SELECT * FROM orders", maxRows=1000)
    assert (complete["rowCount"], complete["truncated"]) == (640, False)
    assert "maxRows" in await sql.fault("secureDatabaseQuery", queryDescription="SELECT 1", maxRows=1001)


async def test_as_many_rows_as_max_rows_are_not_cut_if_there_are_no_more(sql: Caller) -> None:
    query = "SELECT * FROM customers LIMIT 100"
    assert not (await sql("secureDatabaseQuery", queryDescription=query, maxRows=100))["truncated"]
    assert (await sql("secureDatabaseQuery", queryDescription=query, maxRows=99))["truncated"]


async def test_a_sample_says_whether_it_is_the_whole_table(sql: Caller) -> None:
    assert (await sql("sampleRows", tableName="customers"))["truncated"]
    assert not (await sql("sampleRows", tableName="categories", maxRows=50))["truncated"]


async def test_joins_and_aggregates_work(sql: Caller) -> None:
    answer = await sql(
        "secureDatabaseQuery",
        queryDescription="SELECT c.name, count(*) AS n FROM products p JOIN categories c ON c.id = p.category_id "
        "GROUP BY c.name ORDER BY c.name",
    )
    assert answer["data"] == [["Beds", 12], ["Chairs", 12], ["Garden chairs", 12], ["Lamps", 12], ["Tables", 12]]


@pytest.mark.requirement("C7")
@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO customers VALUES (999, 'Eve', 'eve@example.com')",
        "UPDATE customers SET name = 'Eve'",
        "DELETE FROM customers",
        "DROP TABLE customers",
        "CREATE TABLE notes (text TEXT)",
        "CREATE TEMP TABLE notes (text TEXT)",
        "ATTACH DATABASE '/tmp/other.sqlite' AS other",
        "VACUUM INTO '/tmp/copy.sqlite'",
        "PRAGMA query_only = OFF",
        "PRAGMA journal_mode = WAL",
        "PRAGMA writable_schema = ON",
        "BEGIN IMMEDIATE",
        "SELECT load_extension('/tmp/evil.so')",
        "WITH gone AS (SELECT 1) DELETE FROM customers",
    ],
)
async def test_what_is_not_reading_is_refused_and_changes_nothing(sql: Caller, statement: str) -> None:
    before = SHOP_DATABASE.read_bytes()
    message = await sql.fault("secureDatabaseQuery", queryDescription=statement)
    assert "author" in message
    assert "read-only" in message
    assert SHOP_DATABASE.read_bytes() == before


async def test_two_statements_in_one_call_are_refused(sql: Caller) -> None:
    for second in ("SELECT 2", "DROP TABLE customers"):
        message = await sql.fault("secureDatabaseQuery", queryDescription=f"SELECT 1; {second}")
        assert "one statement" in message


@pytest.mark.slow
async def test_an_endless_query_is_stopped(sql: Caller) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    assert "was stopped after" in await sql.fault("secureDatabaseQuery", queryDescription=endless)


async def test_a_huge_value_is_refused(sql: Caller) -> None:
    message = await sql.fault("secureDatabaseQuery", queryDescription="SELECT zeroblob(900000000)")
    assert "too big" in message


async def test_values_that_json_lacks_become_text(sql: Caller) -> None:
    answer = await sql("secureDatabaseQuery", queryDescription="SELECT x'00ff', 9e999, NULL")
    assert answer["data"] == [["00ff", "inf", None]]


async def test_a_wrong_name_points_to_the_schema_tools(sql: Caller) -> None:
    message = await sql.fault("secureDatabaseQuery", queryDescription="SELECT surname FROM customers")
    assert "no such column: surname" in message
    assert "describeTable" in message
    assert "Tables: categories, customers" in await sql.fault("describeTable", tableName="users")


async def test_the_schema_tools_agree_with_the_schema(sql: Caller) -> None:
    tables = {table["name"]: table for table in (await sql("listTables"))["tables"]}
    assert tables["customers"] == {"name": "customers", "rowCount": 300, "columnNames": ["id", "name", "email"]}
    described = await sql("describeTable", tableName="ORDERS")
    assert described["foreignKeys"] == [
        {"table": "orders", "column": "customer_id", "referencedTable": "customers", "referencedColumn": "id"}
    ]
    assert described["indexes"] == ["orders_by_customer"]
    assert len((await sql("getForeignKeys"))["foreignKeys"]) == 7
    found = (await sql("searchSchema", keyword="PRICE"))["matches"]
    assert [(match["tableName"], match["columnName"]) for match in found] == [
        ("order_items", "unit_price_cents"),
        ("products", "price_cents"),
    ]
    statistics = await sql("tableStatistics", tableName="customers")
    assert statistics["columns"][2]["distinct"] == 300


async def test_explaining_a_query_shows_the_index_or_the_full_scan(sql: Caller) -> None:
    indexed = await sql("explainQuery", queryDescription="SELECT * FROM orders WHERE customer_id = 7")
    assert "orders_by_customer" in indexed["steps"][0]["detail"]
    assert indexed["fullScans"] == []
    scanned = await sql("explainQuery", queryDescription="SELECT * FROM orders WHERE status = 'open'")
    assert scanned["fullScans"] == ["SCAN orders"]


async def test_a_sample_is_spread_over_the_table(sql: Caller) -> None:
    sample = await sql("sampleRows", tableName="customers", maxRows=3)
    assert sample["columnNames"] == ["id", "name", "email"]
    assert [row[0] for row in sample["data"]] == [1, 101, 201]
