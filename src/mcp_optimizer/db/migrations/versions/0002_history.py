"""Events: finds, calls, lists and loads, without arguments and results."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

# More than 32 bits; SQLite's INTEGER holds that anyway.
_WHOLE = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
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
    )
    op.create_index("ix_event_at_ms", "event", ["at_ms"])


def downgrade() -> None:
    op.drop_table("event")
