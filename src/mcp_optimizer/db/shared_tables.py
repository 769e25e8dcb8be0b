"""Tables of what gateways share only with each other. Importing this adds them to the catalog's."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, LargeBinary, Table, Text

from mcp_optimizer.db.tables import metadata

__all__ = ["announcement", "metadata", "promoted_tool", "shared_uses", "sign_in"]

# What gateways on one SQLite file tell each other; never used again once read.
announcement = Table(
    "announcement",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
    sqlite_autoincrement=True,
)

# Tools that are listed since their first use, and how often tools were called: the same for all gateways.
promoted_tool = Table(
    "promoted_tool",
    metadata,
    Column("configuration", Text, primary_key=True),
    Column("tool", Text, primary_key=True),
    Column("at_ms", BigInteger, nullable=False),
)

shared_uses = Table(
    "shared_uses",
    metadata,
    Column("configuration", Text, primary_key=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("counts", Text, nullable=False),
)

# Who is signed in on the dashboard, and one-time tickets to sign in with; of what a browser sends, only a hash.
sign_in = Table(
    "sign_in",
    metadata,
    Column("digest", LargeBinary, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("bound_to", Text, nullable=False),
    Column("until_ms", BigInteger, nullable=False),
)
