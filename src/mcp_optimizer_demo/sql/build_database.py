"""Creates shop.sqlite, the database of the demo, identically every time.

Run by hand (`python -m mcp_optimizer_demo.sql.build_database`) after a change here; the server only reads the file.
Rows are spread with fixed arithmetic instead of random numbers, so every run gives the same ones.
"""

import sqlite3
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from mcp_optimizer_demo.sql.database import SHOP_DATABASE

SCHEMA = """
CREATE TABLE customers (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    email TEXT NOT NULL UNIQUE
);
CREATE TABLE categories (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    parent_id INTEGER REFERENCES categories (id)
);
CREATE TABLE products (
    id INTEGER PRIMARY KEY,
    category_id INTEGER NOT NULL REFERENCES categories (id),
    name TEXT NOT NULL,
    price_cents INTEGER NOT NULL CHECK (price_cents > 0),
    stock INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY,
    customer_id INTEGER NOT NULL REFERENCES customers (id),
    ordered_on TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('open', 'shipped', 'delivered', 'cancelled'))
);
CREATE TABLE order_items (
    order_id INTEGER NOT NULL REFERENCES orders (id),
    product_id INTEGER NOT NULL REFERENCES products (id),
    quantity INTEGER NOT NULL CHECK (quantity > 0),
    unit_price_cents INTEGER NOT NULL,
    PRIMARY KEY (order_id, product_id)
) WITHOUT ROWID;
CREATE TABLE reviews (
    id INTEGER PRIMARY KEY,
    product_id INTEGER NOT NULL REFERENCES products (id),
    customer_id INTEGER NOT NULL REFERENCES customers (id),
    rating INTEGER NOT NULL CHECK (rating BETWEEN 1 AND 5),
    comment TEXT
);
CREATE INDEX orders_by_customer ON orders (customer_id);
CREATE INDEX items_by_product ON order_items (product_id);
CREATE INDEX reviews_by_product ON reviews (product_id);
"""

FIRST_NAMES = (
    "Ada Ben Carla David Elif Farid Greta Hugo Ines Jakob Karla Leon Mara Nils Olga Paul Rosa Sami Tess Viktor"
).split()
LAST_NAMES = (
    "Almeida Berger Costa Dubois Eriksson Fischer Garcia Haddad Ito Jansen Kowalski Lopez Moretti Novak Olsen Petrov"
).split()
CATEGORIES = (
    ("Furniture", None),
    ("Tables", 1),
    ("Chairs", 1),
    ("Beds", 1),
    ("Lighting", None),
    ("Lamps", 5),
    ("Garden", None),
    ("Garden chairs", 7),
)
LEAF_CATEGORIES = (2, 3, 4, 6, 8)
MODELS = "Alba Birk Corda Dune Eik Fjord Glen Harbor Iris Juno Kelp Linde".split()
NOUNS = {2: "table", 3: "chair", 4: "bed", 6: "lamp", 8: "garden chair"}
REMARKS = (
    "Sturdy and easy to put together.",
    "The color differs from the photo.",
    "Arrived two days early.",
    None,
    "One screw was missing, support sent it at once.",
    "Exactly what we were looking for.",
    "Too small for our room.",
)
CUSTOMER_COUNT, ORDER_COUNT, REVIEW_COUNT = 300, 640, 320
FIRST_DAY = date(2025, 1, 2)


def build_database(path: Path) -> None:
    """Write a new database to the path, in place of any file there."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(SCHEMA)
        for table, rows in tables().items():
            marks = ", ".join("?" * len(rows[0]))
            # Table names come from this module.
            connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM")


def tables() -> dict[str, list[tuple[Any, ...]]]:
    """The rows of every table, parents before children."""
    products = product_rows()
    orders = order_rows()
    return {
        "customers": customer_rows(),
        "categories": [(number, *category) for number, category in enumerate(CATEGORIES, start=1)],
        "products": products,
        "orders": orders,
        "order_items": item_rows(orders, products),
        "reviews": review_rows(products),
    }


def customer_rows() -> list[tuple[Any, ...]]:
    rows = []
    for number in range(1, CUSTOMER_COUNT + 1):
        first = FIRST_NAMES[number % len(FIRST_NAMES)]
        last = LAST_NAMES[number // len(FIRST_NAMES) % len(LAST_NAMES)]
        rows.append((number, f"{first} {last}", f"{first}.{last}.{number}@example.com".lower()))
    return rows


def product_rows() -> list[tuple[Any, ...]]:
    pairs = [(category, model) for category in LEAF_CATEGORIES for model in MODELS]
    return [
        (number, category, f"{model} {NOUNS[category]}", 1990 + number * 3701 % 58_000, number * 17 % 90)
        for number, (category, model) in enumerate(pairs, start=1)
    ]


def order_rows() -> list[tuple[Any, ...]]:
    rows = []
    for number in range(1, ORDER_COUNT + 1):
        customer = number * 7919 % CUSTOMER_COUNT + 1
        day = FIRST_DAY + timedelta(days=number * 365 // ORDER_COUNT)
        if number > ORDER_COUNT - 30:
            status = "open" if number % 2 else "shipped"
        else:
            status = "cancelled" if number % 13 == 0 else "delivered"
        rows.append((number, customer, day.isoformat(), status))
    return rows


def item_rows(orders: list[tuple[Any, ...]], products: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    rows = []
    for order in orders:
        number = order[0]
        # Steps that share no factor with the number of products, so an order names each product once.
        for place in range(number % 4 + 1):
            product = products[(number * 31 + place * 7) % len(products)]
            rows.append((number, product[0], (number + place) % 3 + 1, product[3]))
    return rows


def review_rows(products: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    rows = []
    for number in range(1, REVIEW_COUNT + 1):
        product = products[number * 13 % len(products)][0]
        customer = number * 37 % CUSTOMER_COUNT + 1
        rating = 5 - number * number % 7 % 5
        rows.append((number, product, customer, rating, REMARKS[number % len(REMARKS)]))
    return rows


if __name__ == "__main__":
    build_database(SHOP_DATABASE)
