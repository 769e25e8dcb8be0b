"""Keys of callers, pins of servers and tools, the audit, and the caller of an event."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_WHOLE = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
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
        "server_pin",
        sa.Column("server", sa.Text, primary_key=True),
        sa.Column("state", sa.Text, primary_key=True),
        sa.Column("identity", sa.Text, nullable=False),
        sa.Column("shown", sa.Text, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
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
    op.add_column("event", sa.Column("caller", sa.Text, nullable=False, server_default="local"))


def downgrade() -> None:
    op.drop_column("event", "caller")
    for name in ("audit", "tool_pin", "server_pin", "api_key"):
        op.drop_table(name)
