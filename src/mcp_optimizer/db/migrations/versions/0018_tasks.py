"""Adds the tasks of servers that clients ask for."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.create_table(
        "task",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("caller", sa.Text, nullable=False),
        sa.Column("server", sa.Text, nullable=False),
        sa.Column("own_id", sa.Text, nullable=False),
        sa.Column("tool", sa.Text, nullable=False),
        sa.Column("selection", sa.Text, nullable=False),
        sa.Column("is_unchanged", sa.Integer, nullable=False),
        sa.Column("until_ms", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_task_caller", "task", ["caller"])
    op.create_index("ix_task_until_ms", "task", ["until_ms"])
