"""Scripts that are kept under a name."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
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


def downgrade() -> None:
    op.drop_table("stored_script")
