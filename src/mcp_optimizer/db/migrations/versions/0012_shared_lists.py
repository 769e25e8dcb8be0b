"""What gateways announce to each other, and what makes their lists alike: promotions and counts."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.create_table(
        "announcement",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "promoted_tool",
        sa.Column("configuration", sa.Text, primary_key=True),
        sa.Column("tool", sa.Text, primary_key=True),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "shared_uses",
        sa.Column("configuration", sa.Text, primary_key=True),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("counts", sa.Text, nullable=False),
    )


def downgrade() -> None:
    for table in ("shared_uses", "promoted_tool", "announcement"):
        op.drop_table(table)
