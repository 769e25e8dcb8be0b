"""Compressed definitions, and short descriptions written by an endpoint."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "definition_form",
        sa.Column("definition_hash", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("definition", sa.Text, nullable=False),
        sa.Column("token_count", sa.Integer, nullable=False),
        sa.Column("groups", sa.Text, nullable=False),
    )
    op.create_table(
        "written_description",
        sa.Column("definition_hash", sa.Text, primary_key=True),
        sa.Column("writer", sa.Text, primary_key=True),
        sa.Column("text", sa.Text, nullable=False),
    )


def downgrade() -> None:
    for table in ("written_description", "definition_form"):
        op.drop_table(table)
