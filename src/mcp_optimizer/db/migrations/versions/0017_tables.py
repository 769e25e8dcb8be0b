"""Creates the tables of the first release, and records the oldest schema whose gateways can use them.

Databases with a lower number were made before the first release; `db.schema` recognises them by that.
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = None

_WHOLE = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "announcement",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "api_key",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("servers", sa.Text, nullable=False),
        sa.Column("risk", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("profile", sa.Text),
        sa.Column("calls_per_minute", sa.Integer),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_at_ms", sa.BigInteger),
        sa.Column("used_at_ms", sa.BigInteger),
        sa.Column("revoked_at_ms", sa.BigInteger),
    )
    op.create_table(
        "audit",
        sa.Column("id", _WHOLE, primary_key=True, autoincrement=True),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("caller", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("client", sa.Text, nullable=False),
        sa.Column("session", sa.Text, nullable=False),
        sa.Column("method", sa.Text, nullable=False),
        sa.Column("server", sa.Text, nullable=False),
        sa.Column("tool", sa.Text, nullable=False),
        sa.Column("risk", sa.Text, nullable=False),
        sa.Column("decision", sa.Text, nullable=False),
        sa.Column("rule", sa.Text, nullable=False),
        sa.Column("approved_by", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("arguments_bytes", _WHOLE, nullable=False),
        sa.Column("arguments_hash", sa.Text, nullable=False),
        sa.Column("arguments", sa.Text),
        sa.Column("result_tokens", _WHOLE, nullable=False),
        sa.Column("result_hash", sa.Text, nullable=False),
        sa.Column("milliseconds", sa.Float, nullable=False),
        sa.Column("definition_hash", sa.Text, nullable=False),
        sa.Column("trace_id", sa.Text, nullable=False),
    )
    op.create_index("ix_audit_at_ms", "audit", ["at_ms"])
    op.create_table(
        "definition_form",
        sa.Column("definition_hash", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("definition", sa.Text, nullable=False),
        sa.Column("token_count", sa.Integer, nullable=False),
        sa.Column("groups", sa.Text, nullable=False),
    )
    op.create_table(
        "definition_tokens",
        sa.Column("definition_hash", sa.Text, primary_key=True),
        sa.Column("encoding", sa.Text, primary_key=True),
        sa.Column("token_count", sa.Integer, nullable=False),
    )
    op.create_table(
        "definition_vector",
        sa.Column("definition_hash", sa.Text, primary_key=True),
        sa.Column("encoder", sa.Text, primary_key=True),
        sa.Column("vector", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "ended_session",
        sa.Column("hash", sa.Text, primary_key=True),
        sa.Column("until_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "event",
        sa.Column("id", _WHOLE, primary_key=True),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("session", sa.Text, nullable=False),
        sa.Column("client", sa.Text, nullable=False),
        sa.Column("server", sa.Text, nullable=False),
        sa.Column("tool", sa.Text, nullable=False),
        sa.Column("tokens", _WHOLE, nullable=False),
        sa.Column("full_tokens", _WHOLE, nullable=False),
        sa.Column("baseline_tokens", _WHOLE, nullable=False),
        sa.Column("milliseconds", sa.Float, nullable=False),
        sa.Column("cached", sa.Boolean, nullable=False),
        sa.Column("truncated", sa.Boolean, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("found", sa.Text, nullable=False),
        sa.Column("caller", sa.Text, nullable=False, server_default="local"),
        sa.Column("configuration", sa.Text, nullable=False, server_default=sa.text("''")),
    )
    op.create_index("ix_event_at_ms", "event", ["at_ms"])
    op.create_table(
        "gateway",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("started_at_ms", sa.BigInteger, nullable=False),
        sa.Column("seen_at_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "kept_result",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("caller", sa.Text, nullable=False),
        sa.Column("unit", sa.Text, nullable=False),
        sa.Column("pieces", sa.Integer, nullable=False),
        sa.Column("max_tokens", _WHOLE, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("stored_bytes", sa.BigInteger, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_kept_result_at_ms", "kept_result", ["at_ms"])
    op.create_table(
        "mcpserver",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("transport", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("last_updated", sa.DateTime(timezone=True), server_default=sa.func.current_timestamp()),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.func.current_timestamp()),
        sa.UniqueConstraint("name", "fingerprint", name="uq_mcpserver_name_fingerprint"),
    )
    made = op.create_table(
        "oldest_reader",
        sa.Column("revision", sa.Text, primary_key=True),
    )
    op.bulk_insert(made, [{"revision": revision}])
    op.create_table(
        "promoted_tool",
        sa.Column("configuration", sa.Text, primary_key=True),
        sa.Column("tool", sa.Text, primary_key=True),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "result_shape",
        sa.Column("definition_hash", sa.Text, primary_key=True),
        sa.Column("results", sa.Integer, nullable=False),
        sa.Column("shape", sa.Text, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "search_use",
        sa.Column("term", sa.Text, primary_key=True),
        sa.Column("tool", sa.Text, primary_key=True),
        sa.Column("count", sa.Integer, nullable=False),
    )
    op.create_table(
        "secret",
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("claimed_until_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "server_pin",
        sa.Column("server", sa.Text, primary_key=True),
        sa.Column("state", sa.Text, primary_key=True),
        sa.Column("identity", sa.Text, nullable=False),
        sa.Column("shown", sa.Text, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "shared_uses",
        sa.Column("configuration", sa.Text, primary_key=True),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("counts", sa.Text, nullable=False),
    )
    op.create_table(
        "sign_in",
        sa.Column("digest", sa.LargeBinary, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("bound_to", sa.Text, nullable=False),
        sa.Column("until_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "stored_script",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("parameters", sa.Text, nullable=False),
        sa.Column("uses", sa.Text, nullable=False),
        sa.Column("risk", sa.Text, nullable=False),
        sa.Column("saved_at_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "tool_pin",
        sa.Column("server", sa.Text, primary_key=True),
        sa.Column("tool", sa.Text, primary_key=True),
        sa.Column("state", sa.Text, primary_key=True),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("definition", sa.LargeBinary, nullable=False),
        sa.Column("by", sa.Text, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("whole", sa.Text),
        sa.Column("sent", sa.Text),
    )
    op.create_table(
        "written_description",
        sa.Column("definition_hash", sa.Text, primary_key=True),
        sa.Column("writer", sa.Text, primary_key=True),
        sa.Column("text", sa.Text, nullable=False),
    )
    op.create_table(
        "kept_chunk",
        sa.Column("result_id", sa.Text, sa.ForeignKey("kept_result.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("first", sa.Integer, primary_key=True),
        sa.Column("block", sa.Integer, nullable=False),
        sa.Column("lengths", sa.LargeBinary, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "server_list",
        sa.Column("mcpserver_id", sa.Text, sa.ForeignKey("mcpserver.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("entries", sa.Text, nullable=False),
    )
    op.create_table(
        "tool",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("mcpserver_id", sa.Text, sa.ForeignKey("mcpserver.id", ondelete="CASCADE"), nullable=False),
        sa.Column("details", sa.Text, nullable=False),
        sa.Column("details_embedding", sa.LargeBinary, nullable=False),
        sa.Column("token_count", sa.Integer, nullable=False, server_default="0"),
        sa.Column("definition_hash", sa.Text, nullable=False),
        sa.Column("last_updated", sa.DateTime(timezone=True), server_default=sa.func.current_timestamp()),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.func.current_timestamp()),
        sa.Column("vector_key", sa.Text),
        sa.CheckConstraint("token_count >= 0", name="ck_tool_token_count"),
    )
    op.create_index("ix_tool_mcpserver_id", "tool", ["mcpserver_id"])


def downgrade() -> None:
    for table in (
        "tool",
        "server_list",
        "kept_chunk",
        "written_description",
        "tool_pin",
        "stored_script",
        "sign_in",
        "shared_uses",
        "server_pin",
        "secret",
        "search_use",
        "result_shape",
        "promoted_tool",
        "oldest_reader",
        "mcpserver",
        "kept_result",
        "gateway",
        "event",
        "ended_session",
        "definition_vector",
        "definition_tokens",
        "definition_form",
        "audit",
        "api_key",
        "announcement",
    ):
        op.drop_table(table)
