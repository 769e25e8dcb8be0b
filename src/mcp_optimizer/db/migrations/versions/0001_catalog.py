"""Servers, tools, and each definition's cost and vector."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
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
        sa.CheckConstraint("token_count >= 0", name="ck_tool_token_count"),
    )
    op.create_index("ix_tool_mcpserver_id", "tool", ["mcpserver_id"])
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


def downgrade() -> None:
    for table in ("definition_vector", "definition_tokens", "tool", "mcpserver"):
        op.drop_table(table)
