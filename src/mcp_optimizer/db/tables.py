"""The catalog's tables for SQLAlchemy Core. Migrations create them; a test compares the two."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    func,
    text,
)

__all__ = ["announcement", "metadata", "promoted_tool", "shared_uses", "sign_in"]

metadata = MetaData()

# More than 32 bits; SQLite's INTEGER holds that anyway, and only INTEGER autoincrements.
Whole = BigInteger().with_variant(Integer, "sqlite")


class Moment(TypeDecorator[datetime]):
    """A time in UTC; restores the time zone, which SQLite drops."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_result_value(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        return value.replace(tzinfo=UTC) if value is not None and value.tzinfo is None else value


# One row: the oldest schema whose gateways can use this one. Migrations that only add do not change it.
oldest_reader = Table("oldest_reader", metadata, Column("revision", Text, primary_key=True))

# A server is identified by its name and its command or URL: two clients may call different servers "github".
mcpserver = Table(
    "mcpserver",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("transport", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("last_updated", Moment, server_default=func.current_timestamp()),
    Column("created_at", Moment, server_default=func.current_timestamp()),
    UniqueConstraint("name", "fingerprint", name="uq_mcpserver_name_fingerprint"),
)

# A tool's vector is in `details_embedding` if that was written, otherwise in `definition_vector` under `vector_key`.
tool = Table(
    "tool",
    metadata,
    Column("id", Text, primary_key=True),
    Column("mcpserver_id", Text, ForeignKey("mcpserver.id", ondelete="CASCADE"), nullable=False),
    Column("details", Text, nullable=False),
    Column("details_embedding", LargeBinary, nullable=False),
    Column("token_count", Integer, nullable=False, server_default="0"),
    Column("definition_hash", Text, nullable=False),
    Column("last_updated", Moment, server_default=func.current_timestamp()),
    Column("created_at", Moment, server_default=func.current_timestamp()),
    Column("vector_key", Text),
    CheckConstraint("token_count >= 0", name="ck_tool_token_count"),
    Index("ix_tool_mcpserver_id", "mcpserver_id"),
)

# A server's other lists: the entries of one kind (prompts, resources, resourceTemplates) as JSON.
server_list = Table(
    "server_list",
    metadata,
    Column("mcpserver_id", Text, ForeignKey("mcpserver.id", ondelete="CASCADE"), primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("entries", Text, nullable=False),
)

# Cost and vector of a definition, independent of the server, so an unchanged tool is never counted or embedded again.
definition_tokens = Table(
    "definition_tokens",
    metadata,
    Column("definition_hash", Text, primary_key=True),
    Column("encoding", Text, primary_key=True),
    Column("token_count", Integer, nullable=False),
)

definition_vector = Table(
    "definition_vector",
    metadata,
    Column("definition_hash", Text, primary_key=True),
    Column("encoder", Text, primary_key=True),
    Column("vector", LargeBinary, nullable=False),
)

# `found` lists the tools that a search returned, as JSON pairs of server and tool. `configuration` identifies the
# server file; events from before it was recorded have none.
event = Table(
    "event",
    metadata,
    Column("id", Whole, primary_key=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("session", Text, nullable=False),
    Column("client", Text, nullable=False),
    Column("server", Text, nullable=False),
    Column("tool", Text, nullable=False),
    Column("tokens", Whole, nullable=False),
    Column("full_tokens", Whole, nullable=False),
    Column("baseline_tokens", Whole, nullable=False),
    Column("milliseconds", Float, nullable=False),
    Column("cached", Boolean, nullable=False),
    Column("truncated", Boolean, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("found", Text, nullable=False),
    Column("caller", Text, nullable=False, server_default="local"),
    Column("configuration", Text, nullable=False, server_default=text("''")),
    Index("ix_event_at_ms", "at_ms"),
)

# A definition as it is sent. `kind` names everything else it depends on; `groups` is JSON.
definition_form = Table(
    "definition_form",
    metadata,
    Column("definition_hash", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("definition", Text, nullable=False),
    Column("token_count", Integer, nullable=False),
    Column("groups", Text, nullable=False),
)

written_description = Table(
    "written_description",
    metadata,
    Column("definition_hash", Text, primary_key=True),
    Column("writer", Text, primary_key=True),
    Column("text", Text, nullable=False),
)

# How often a tool was called after searches with a term. Both are keyed hashes; the key is the `tool` of the row whose
# `term` is `salt`.
search_use = Table(
    "search_use",
    metadata,
    Column("term", Text, primary_key=True),
    Column("tool", Text, primary_key=True),
    Column("count", Integer, nullable=False),
)

# The keys in a tool's results, as JSON; never values. `results` is the number of results the shape was learned from.
result_shape = Table(
    "result_shape",
    metadata,
    Column("definition_hash", Text, primary_key=True),
    Column("results", Integer, nullable=False),
    Column("shape", Text, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
)

# Secrets by kind and name. `body` arrives encrypted; an empty one is only a claim. One process at a time claims a row,
# until `claimed_until_ms`. The row of the kind `key` has the id of the key with which all others are encrypted.
secret = Table(
    "secret",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("body", LargeBinary, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("claimed_until_ms", BigInteger, nullable=False),
)

# The API keys of callers. `digest` is a hash of a key's secret; `servers` is a JSON list, or null for all servers.
api_key = Table(
    "api_key",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("servers", Text, nullable=False),
    Column("risk", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("profile", Text),
    Column("calls_per_minute", Integer),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("expires_at_ms", BigInteger),
    Column("used_at_ms", BigInteger),
    Column("revoked_at_ms", BigInteger),
    Column("holder", Text),
    Column("stands_for", Text),
    Column("replaced_at_ms", BigInteger),
)

# A server as it was when its tools were approved (`state` is `approved`), and as it is now if a change waits for
# approval (`waiting`). `identity` is a hash of its command or URL; `shown` is the command or URL without secrets.
server_pin = Table(
    "server_pin",
    metadata,
    Column("server", Text, primary_key=True),
    Column("state", Text, primary_key=True),
    Column("identity", Text, nullable=False),
    Column("shown", Text, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
)

# The same for a tool: its approved definition, and the one that waits. `definition` is compressed JSON; `by` says who
# approved it ("baseline" if it needed no approval). `whole` is the hash of all fields, `sent` the hash of the bytes;
# gateways before schema 0015 write neither. A server's instructions are stored as the tool without a name.
tool_pin = Table(
    "tool_pin",
    metadata,
    Column("server", Text, primary_key=True),
    Column("tool", Text, primary_key=True),
    Column("state", Text, primary_key=True),
    Column("hash", Text, nullable=False),
    Column("definition", LargeBinary, nullable=False),
    Column("by", Text, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("whole", Text),
    Column("sent", Text),
)

# Who did what, and what allowed it. Rows are only added, and deleted by age; a setting decides if arguments are kept.
audit = Table(
    "audit",
    metadata,
    Column("id", Whole, primary_key=True, autoincrement=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("caller", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("client", Text, nullable=False),
    Column("session", Text, nullable=False),
    Column("method", Text, nullable=False),
    Column("server", Text, nullable=False),
    Column("tool", Text, nullable=False),
    Column("risk", Text, nullable=False),
    Column("decision", Text, nullable=False),
    Column("rule", Text, nullable=False),
    Column("approved_by", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("arguments_bytes", Whole, nullable=False),
    Column("arguments_hash", Text, nullable=False),
    Column("arguments", Text),
    Column("result_tokens", Whole, nullable=False),
    Column("result_hash", Text, nullable=False),
    Column("milliseconds", Float, nullable=False),
    Column("definition_hash", Text, nullable=False),
    Column("trace_id", Text, nullable=False),
    Index("ix_audit_at_ms", "at_ms"),
)

# Scripts stored under a name. `parameters` and `uses` are JSON lists; `uses` has the tools, with the hashes of their
# definitions when the script was saved.
stored_script = Table(
    "stored_script",
    metadata,
    Column("name", Text, primary_key=True),
    Column("source", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("parameters", Text, nullable=False),
    Column("uses", Text, nullable=False),
    Column("risk", Text, nullable=False),
    Column("saved_at_ms", BigInteger, nullable=False),
)

# The gateways that run on this database. Each refreshes its row while it runs; the others reach it at `address`.
gateway = Table(
    "gateway",
    metadata,
    Column("id", Text, primary_key=True),
    Column("address", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("started_at_ms", BigInteger, nullable=False),
    Column("seen_at_ms", BigInteger, nullable=False),
)

# Sessions that their clients ended, by the hash of their ids, until the ids expire.
ended_session = Table(
    "ended_session",
    metadata,
    Column("hash", Text, primary_key=True),
    Column("until_ms", BigInteger, nullable=False),
)

# Complete results that were cut, in pieces; a chunk contains several pieces. 0 pieces: not yet completely written.
kept_result = Table(
    "kept_result",
    metadata,
    Column("id", Text, primary_key=True),
    Column("caller", Text, nullable=False),
    Column("unit", Text, nullable=False),
    Column("pieces", Integer, nullable=False),
    Column("max_tokens", Whole, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("stored_bytes", BigInteger, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Index("ix_kept_result_at_ms", "at_ms"),
)

kept_chunk = Table(
    "kept_chunk",
    metadata,
    Column("result_id", Text, ForeignKey("kept_result.id", ondelete="CASCADE"), primary_key=True),
    Column("first", Integer, primary_key=True),
    Column("block", Integer, nullable=False),
    Column("lengths", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
)


# Announcements between gateways on one SQLite file; not used again once read.
announcement = Table(
    "announcement",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
    sqlite_autoincrement=True,
)

# The tools that are listed since their first use, and how often tools were called; the same for all gateways.
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

# Tasks of servers that clients ask for, until their time is over; `own_id` is the id at the server.
task = Table(
    "task",
    metadata,
    Column("id", Text, primary_key=True),
    Column("caller", Text, nullable=False),
    Column("server", Text, nullable=False),
    Column("own_id", Text, nullable=False),
    Column("tool", Text, nullable=False),
    Column("selection", Text, nullable=False),
    Column("is_unchanged", Integer, nullable=False),
    Column("until_ms", BigInteger, nullable=False),
    Index("ix_task_caller_until_ms", "caller", "until_ms"),
    Index("ix_task_until_ms", "until_ms"),
)

# Sign-ins on the dashboard, and one-time tickets for signing in; only a hash of the value that a browser sends.
sign_in = Table(
    "sign_in",
    metadata,
    Column("digest", LargeBinary, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("bound_to", Text, nullable=False),
    Column("until_ms", BigInteger, nullable=False),
)
