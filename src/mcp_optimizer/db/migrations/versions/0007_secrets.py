"""Secrets, encrypted before they get here."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "secret",
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("claimed_until_ms", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("secret")
