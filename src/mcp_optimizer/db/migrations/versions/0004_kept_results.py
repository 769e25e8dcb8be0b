"""Complete results that were cut, so the rest can be read."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

# More than 32 bits; SQLite's INTEGER holds that anyway.
_WHOLE = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
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
        "kept_chunk",
        sa.Column("result_id", sa.Text, sa.ForeignKey("kept_result.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("first", sa.Integer, primary_key=True),
        sa.Column("block", sa.Integer, nullable=False),
        sa.Column("lengths", sa.LargeBinary, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )


def downgrade() -> None:
    for table in ("kept_chunk", "kept_result"):
        op.drop_table(table)
