"""Counts a caller's living tasks from an index alone, however many tasks there are."""

from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    op.create_index("ix_task_caller_until_ms", "task", ["caller", "until_ms"])
    op.drop_index("ix_task_caller", "task")
